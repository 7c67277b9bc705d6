package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/mempool/stores"
)

var serveKills = flag.Int("kills", 5, "how often TestServeKilled kills a server")

// tierLoad holds the prompts for the servers of a test, and their expected continuations.
type tierLoad struct {
	tokens int      // length of a prompt
	want   []string // continuation of each prompt by a server without tiers
}

// prompt returns the nth prompt.
func (l *tierLoad) prompt(n int) []kv.Token {
	rng := rand.New(rand.NewPCG(uint64(n), 1))
	tokens := make([]kv.Token, l.tokens)
	for i := range tokens {
		tokens[i] = kv.Token(rng.IntN(100))
	}
	return tokens
}

// tierUsage is the part of an answer that these tests read.
type tierUsage struct {
	Prompt  []kv.Token `json:"prompt_token_ids"`
	Choices []struct {
		Text     string
		Message  struct{ Content string }
		TokenIDs []kv.Token `json:"token_ids"`
	}
	Usage struct {
		Output struct {
			Accepted int `json:"accepted_prediction_tokens"`
		} `json:"completion_tokens_details"`
		Details struct {
			Cached int            `json:"cached_tokens"`
			Tiers  map[string]int `json:"cached_tokens_by_tier"`
		} `json:"prompt_tokens_details"`
	}
}

// tierAsk posts a request. An error means that the server is gone.
func tierAsk(url, path string, body any) (u tierUsage, err error) {
	b, err := json.Marshal(body)
	if err != nil {
		return u, err
	}
	res, err := asker.Post(url+path, "application/json", bytes.NewReader(b))
	if err != nil {
		return u, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", res.Status, text)
	}
	if err == nil {
		err = json.Unmarshal(text, &u)
	}
	return u, err
}

// newTierLoad makes a load of this many prompts of this many tokens. It takes the expected
// continuations from a server without tiers, which it starts with args.
func newTierLoad(t *testing.T, prompts, tokens int, args []string) *tierLoad {
	t.Helper()
	l := &tierLoad{tokens: tokens}
	plain := startCoppice(t, "plain", args...)
	for n := range prompts {
		text, _, err := l.ask(plain.url, n)
		if err != nil {
			t.Fatal(err)
		}
		l.want = append(l.want, text)
	}
	plain.stop()
	return l
}

// ask sends the nth prompt to a server.
func (l *tierLoad) ask(url string, n int) (text string, u tierUsage, err error) {
	u, err = tierAsk(url, "/v1/completions", map[string]any{"prompt": l.prompt(n), "max_tokens": 4, "temperature": 0, "ignore_eos": true})
	if err == nil {
		text = u.Choices[0].Text
	}
	return text, u, err
}

// TestServeKilled kills a server at random moments under load. Each time the records on disk
// must verify, the next server must find them, and every prompt must be continued as without
// tiers. KV of another type in the same directory must be left alone and reported.
func TestServeKilled(t *testing.T) {
	t.Parallel()
	dir, model := t.TempDir(), nano(t)
	args := []string{"serve", "--addr", "127.0.0.1:0", "--model", model, "--kv-tokens", "1024", "--no-page"}
	l := newTierLoad(t, 24, 200, args)
	tiered := append(args, "--kv-disk", dir+":128MiB", "--kv-host", "64MiB", "--kv-write", "through", "--kv-token-time", "1s")
	other := startCoppice(t, "other", append(tiered, "--kv-type", "bf16")...)
	other.stop()
	rng := rand.New(rand.NewPCG(1, uint64(*serveKills)))
	there, found := 0, 0
	for round := range *serveKills {
		p := startCoppice(t, fmt.Sprintf("server %d", round), tiered...)
		if text := p.said.String(); !strings.Contains(text, "left alone") {
			t.Errorf("nothing is said of KV of another type: %s", text)
		}
		l.put(t, p, 30+rng.IntN(60))
		p.kill()
		onDisk := l.onDisk(t, dir)
		p = startCoppice(t, fmt.Sprintf("server %d again", round), tiered...)
		for n, tokens := range onDisk {
			text, u, err := l.ask(p.url, n)
			if err != nil || text != l.want[n] {
				t.Fatalf("prompt %d is continued by %q, want %q, %v", n, text, l.want[n], err)
			}
			there += tokens
			found += min(u.Usage.Details.Tiers["disk"], tokens)
		}
		p.kill()
	}
	t.Logf("%d kills: %d of %d tokens on disk were found", *serveKills, found, there)
	if there == 0 || found*100 < there*95 {
		t.Errorf("%d of %d tokens on disk were found", found, there)
	}
}

// put starts three clients and waits until they have had this many answers, all of which must be
// right. The server is still computing when put returns.
func (l *tierLoad) put(t *testing.T, p *process, answers int) {
	t.Helper()
	over := make(chan struct{})
	var mu sync.Mutex
	var clients sync.WaitGroup
	for c := range 3 {
		rng := rand.New(rand.NewPCG(uint64(c), uint64(answers)))
		clients.Go(func() {
			for {
				n := rng.IntN(len(l.want))
				text, _, err := l.ask(p.url, n)
				mu.Lock()
				switch answers--; {
				case answers < 0:
					mu.Unlock()
					return
				case err != nil || text != l.want[n]:
					t.Errorf("prompt %d is continued by %q, want %q, %v", n, text, l.want[n], err)
					answers = 0
				}
				if answers == 0 {
					close(over)
				}
				mu.Unlock()
			}
		})
	}
	<-over
	t.Cleanup(clients.Wait)
}

// onDisk returns the tokens on disk of each prompt, by its number. All records must be
// intact.
func (l *tierLoad) onDisk(t *testing.T, dir string) map[int]int {
	t.Helper()
	dirs, err := stores.Find(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	tokens := map[int]int{}
	for i := range dirs {
		if dirs[i].Identity.KVType != kv.F32 {
			continue
		}
		for r := range dirs[i].Records(true) {
			if r.Err != nil {
				t.Errorf("a record is damaged: %v", r.Err)
			}
			for n := range l.want {
				if p := l.prompt(n); r.Start == 0 && len(r.Tokens) <= len(p) && slices.Equal(r.Tokens, p[:len(r.Tokens)]) {
					tokens[n] = max(tokens[n], len(r.Tokens))
				}
			}
		}
	}
	return tokens
}

// TestServeShare runs two servers on one shared directory and kills one. The other must go on
// giving right answers, find no damaged record, and have found the records of the first.
func TestServeShare(t *testing.T) {
	t.Parallel()
	dir, model := t.TempDir(), nano(t)
	args := []string{"serve", "--addr", "127.0.0.1:0", "--model", model, "--kv-tokens", "8192", "--no-page"}
	l := newTierLoad(t, 8, 2100, args) // only whole extents are shared: 2,048 tokens of this model
	args = append(args, "--kv-share", dir+":128MiB", "--kv-write", "through", "--kv-token-time", "1s")
	stays := startCoppice(t, "stays", args...)
	for round := range 2 {
		dies := startCoppice(t, fmt.Sprintf("dies %d", round), args...)
		l.put(t, dies, 30)
		l.put(t, stays, 10)
		dies.kill()
		l.put(t, stays, 10)
	}
	var figures struct {
		Tiers []struct {
			Tier      string
			HitTokens int `json:"hit_tokens"`
			Damaged   int
		}
	}
	stays.document("/v1/cache/stats", &figures)
	if len(figures.Tiers) != 1 || figures.Tiers[0].Tier != "shared" || figures.Tiers[0].Damaged != 0 || figures.Tiers[0].HitTokens == 0 {
		t.Errorf("the one that stays says %+v", figures.Tiers)
	}
}

// TestServeShareKept checks that a server whose only tier is a shared directory creates it,
// reports it, and keeps its KV there when stopped, where the next server finds it.
func TestServeShareKept(t *testing.T) {
	t.Parallel()
	dir, model := filepath.Join(t.TempDir(), "new"), nano(t)
	args := []string{"serve", "--addr", "127.0.0.1:0", "--model", model, "--kv-tokens", "8192", "--no-page"}
	l := newTierLoad(t, 2, 2100, args) // only whole extents are shared: 2,048 tokens of this model
	args = append(args, "--kv-share", dir+":128MiB")
	ask := func(p *process) (shared int) {
		t.Helper()
		for n, want := range l.want {
			text, u, err := l.ask(p.url, n)
			if err != nil || text != want {
				t.Fatalf("prompt %d is continued by %q, want %q, %v", n, text, want, err)
			}
			shared += u.Usage.Details.Tiers["shared"]
		}
		return shared
	}
	first := startCoppice(t, "first", args...)
	if text := first.said.String(); !strings.Contains(text, "created the directory") {
		t.Errorf("nothing is said of the directory that was made: %s", text)
	}
	ask(first)
	first.stop()
	if text := first.said.String(); !strings.Contains(text, `"msg":"KV written at shutdown","tier":"shared","extents":2`) {
		t.Errorf("nothing is said of what was written: %s", text)
	}
	shared := 0
	for try := 0; shared < 2*2048 && try < 10; try++ { // a probe or read may be late on a stalled machine
		second := startCoppice(t, "second", args...)
		shared = ask(second)
		second.stop()
	}
	if shared != 2*2048 {
		t.Errorf("%d tokens came from the shared directory, want %d", shared, 2*2048)
	}
}

// TestServeWarmRestart does the first steps of a new user: a long question, a restart, the
// next question. Usage, metrics and the page must show that the prompt came from disk.
func TestServeWarmRestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	args := []string{"serve", "--addr", "127.0.0.1:0", "--kv-disk", dir + ":256MiB"}
	long := strings.Repeat("Why does a prism part the light that falls on it into colours? ", 40)
	chat := func(p *process, messages ...map[string]string) tierUsage {
		t.Helper()
		u, err := tierAsk(p.url, "/v1/chat/completions", map[string]any{"messages": messages, "max_tokens": 8, "temperature": 0})
		if err != nil {
			t.Fatal(err)
		}
		return u
	}
	first := startCoppice(t, "first", args...)
	asked := map[string]string{"role": "user", "content": long}
	u := chat(first, asked)
	if d := u.Usage.Details; d.Tiers != nil {
		t.Errorf("the first question came from %v", d.Tiers)
	}
	answered := map[string]string{"role": "assistant", "content": u.Choices[0].Message.Content}
	first.stop()
	var second *process
	disk := 0
	for try := 0; disk < 500 && try < 10; try++ { // reads may miss their deadline on a stalled machine
		if second != nil {
			second.stop()
		}
		second = startCoppice(t, "second", args...)
		u = chat(second, asked, answered, map[string]string{"role": "user", "content": "And a second prism?"})
		disk = u.Usage.Details.Tiers["disk"]
	}
	if disk < 500 || disk > u.Usage.Details.Cached {
		t.Errorf("usage says that %d tokens came from disk: %+v", disk, u.Usage.Details)
	}
	var figures struct {
		Tiers []struct {
			Tier      string
			HitTokens int `json:"hit_tokens"`
		}
	}
	second.document("/v1/cache/stats", &figures)
	if len(figures.Tiers) != 1 || figures.Tiers[0].HitTokens != disk {
		t.Errorf("the figures say %+v, usage %d", figures.Tiers, disk)
	}
	var view struct {
		Pool struct {
			Tiers []struct {
				Tier      string
				HitTokens int `json:"hit_tokens"`
			}
		}
	}
	second.document("/v1/view", &view)
	if len(view.Pool.Tiers) != 2 || view.Pool.Tiers[1].Tier != "disk" || view.Pool.Tiers[1].HitTokens != disk {
		t.Errorf("the page says %+v, usage %d", view.Pool.Tiers, disk)
	}
	if n := second.figures()[`coppice_cached_tokens_total{cache_source="disk",model_name="coppice-speak"}`]; n != disk {
		t.Errorf("the metrics say %d tokens, usage %d", n, disk)
	}
}
