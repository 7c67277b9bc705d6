package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
)

// soakLong is the number of long prompts. Four are in use at a time, and change with the number of the request, so
// that there is always KV to write to tiers and to drop there.
const soakLong = 32

// soakLoad is a load of long prompts, short prompts with shared prefixes and conversations, and the
// right answer to each.
type soakLoad struct {
	seed  uint64
	cards []soakCard // the long prompts first
}

// soakCard is a request without stream, and its answer.
type soakCard struct {
	path string
	body map[string]any
	want string
}

// newSoakLoad makes a load. It takes the answers from a server that has nothing else to do and
// no tiers.
func newSoakLoad(t *testing.T, seed uint64, model string) *soakLoad {
	t.Helper()
	l := &soakLoad{seed: seed}
	quiet := startCoppice(t, "quiet", "serve", "--addr", "127.0.0.1:0", "--model", model, "--kv-tokens", "16384", "--no-page", "--no-curve")
	rng := rand.New(rand.NewPCG(seed, 1))
	for n := range soakLong {
		// Only whole extents are shared: 2,048 tokens of this model.
		l.add(t, quiet, "/v1/completions", map[string]any{"prompt": ids(2060+n, seed, uint64(n)), "max_tokens": 20 + rng.IntN(100)})
	}
	for n := range 12 {
		prompt := append(ids(300, seed, 200+uint64(n%3)), ids(suffixTokens, seed, 300+uint64(n))...)
		body := map[string]any{"prompt": prompt, "max_tokens": 1 + rng.IntN(300)}
		if n%3 == 0 {
			body["temperature"], body["seed"] = 1, n
		}
		l.add(t, quiet, "/v1/completions", body)
	}
	for n := range 6 {
		talk := []map[string]string{{"role": "system", "content": fmt.Sprintf("Number %d answers questions about light, shortly.", n%2)}}
		for turn := range 3 {
			talk = append(talk, map[string]string{"role": "user", "content": fmt.Sprintf("Question %d of %d: what is a ray?", turn, n)})
			said := l.add(t, quiet, "/v1/chat/completions", map[string]any{"messages": talk, "max_tokens": 20 + rng.IntN(100)})
			talk = append(talk[:len(talk):len(talk)], map[string]string{"role": "assistant", "content": said})
		}
	}
	quiet.stop()
	return l
}

// add asks a server for the answer to a request, adds both to the load and returns the answer.
func (l *soakLoad) add(t *testing.T, quiet *process, path string, body map[string]any) string {
	t.Helper()
	body["ignore_eos"] = true
	if body["temperature"] == nil {
		body["temperature"] = 0
	}
	u, err := tierAsk(quiet.url, path, body)
	if err != nil {
		t.Fatal(err)
	}
	c := soakCard{path: path, body: body, want: u.Choices[0].Text + u.Choices[0].Message.Content}
	if c.want == "" {
		t.Fatalf("%v is answered by nothing", body)
	}
	l.cards = append(l.cards, c)
	return c.want
}

// draw returns the random numbers of the i-th request, and its card.
func (l *soakLoad) draw(i int) (*rand.Rand, *soakCard) {
	rng := rand.New(rand.NewPCG(l.seed, uint64(i)))
	if rng.IntN(4) == 0 {
		return rng, &l.cards[(i/200+rng.IntN(4))%soakLong]
	}
	return rng, &l.cards[soakLong+rng.IntN(len(l.cards)-soakLong)]
}

// call makes the i-th request: of eight one without a stream, and two whose client leaves.
func (l *soakLoad) call(i int) call {
	rng, card := l.draw(i)
	body := map[string]any{"stream": true}
	for k, v := range card.body {
		body[k] = v
	}
	q := call{path: card.path}
	switch rng.IntN(8) {
	case 0:
		delete(body, "stream")
	case 1:
		q.leave = -1
	case 2:
		q.leave = 1 + rng.IntN(40)
	}
	var err error
	if q.body, err = json.Marshal(body); err != nil {
		panic(err) // cannot happen: the values are plain
	}
	return q
}

// wrong returns what is wrong with an answer: other text than the quiet server's, or more than one end.
func (l *soakLoad) wrong(a *answer) string {
	_, card := l.draw(a.number)
	whole := a.well() && !a.left
	if whole && a.text != card.want || !whole && !strings.HasPrefix(card.want, a.text) {
		return fmt.Sprintf("the text is %q, want %q", a.text, card.want)
	}
	if strings.HasPrefix(a.fault, "data after the end") {
		return a.fault
	}
	return ""
}

// large is a prompt of nearly the longest body that servers take.
var large = strings.Repeat("light ", 8<<20/6-100)

// postLarge sends a body that is far too long for the model, in one of two forms. Each must be refused by
// an error of the API.
func postLarge(url string, n int) error {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 2 * patience}
	path, body := "/v1/completions", `{"max_tokens":1,"prompt":"`+large+`"}`
	if n%2 == 1 {
		path, body = "/v1/chat/completions", `{"max_tokens":1,"messages":[{"role":"user","content":"`+large+`"}]}`
	}
	res, err := client.Post(url+path, "application/json", strings.NewReader(body))
	if err != nil {
		return err
	}
	defer res.Body.Close()
	var e struct{ Error struct{ Code string } }
	err = json.NewDecoder(res.Body).Decode(&e)
	switch res.StatusCode {
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusTooManyRequests, http.StatusServiceUnavailable:
	default:
		return fmt.Errorf("a prompt of %d bytes: %s %+v", len(large), res.Status, e)
	}
	if err == nil && e.Error.Code == "" {
		err = fmt.Errorf("%s without a code", res.Status)
	}
	return err
}
