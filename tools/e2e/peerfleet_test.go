//go:build unix

package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice/kv"
)

// foreignFleet is a gateway in front of workers of another project.
type foreignFleet struct {
	*process
	front  string // URL of requests; that of the process, or of what stands before it
	block  int    // tokens of a block
	breaks bool   // a stream whose worker dies breaks off, without an event that says so
}

// newForeignFleet makes a fleet of a gateway, which logs warnings when workers fail, as they do in these tests.
func newForeignFleet(p *process, block int) *foreignFleet {
	p.mayWarn = true
	return &foreignFleet{process: p, front: p.url, block: block}
}

// foreignWorker is an entry of the file of --workers-file.
type foreignWorker struct {
	Name   string `json:"name,omitempty"`
	URL    string `json:"url"`
	Events string `json:"events,omitempty"`
	Replay string `json:"replay,omitempty"`
	Topic  string `json:"topic,omitempty"`
}

// routeForeign starts a gateway in front of workers, whose model and tokenizer are in the directory
// model, and waits until it follows their events.
func routeForeign(t *testing.T, block int, model string, workers []foreignWorker, flags ...string) *foreignFleet {
	t.Helper()
	f := launchForeign(t, block, model, workers, flags...)
	for _, w := range workers {
		f.follows(w.Name)
	}
	return f
}

// launchForeign starts a gateway in front of workers.
func launchForeign(t *testing.T, block int, model string, workers []foreignWorker, flags ...string) *foreignFleet {
	t.Helper()
	args := append([]string{"route"}, foreignFlags(t, block, model, workers)...)
	return newForeignFleet(launch(t, http.DefaultClient, args, flags), block)
}

// foreignFlags returns the flags of a gateway, or of Envoy's picker, that name workers and their model.
func foreignFlags(t *testing.T, block int, model string, workers []foreignWorker) []string {
	t.Helper()
	text, err := json.Marshal(map[string]any{"workers": workers})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "workers.json")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return []string{"--workers-file", file, "--model", model, "--block-tokens", strconv.Itoa(block), "--salts", "plain"}
}

// rankState is what /v1/fleet has about the only rank of a worker.
type rankState struct {
	State, Mode, Error string
	Held               int
}

// ranks returns the state of each worker by name.
func (f *foreignFleet) ranks() map[string]rankState {
	f.t.Helper()
	var fleet struct {
		Workers []struct {
			Name, State, Mode, Error string
			Ranks                    []struct {
				Held int `json:"index_blocks"`
			}
		}
	}
	f.get("/v1/fleet", &fleet)
	all := map[string]rankState{}
	for _, w := range fleet.Workers {
		s := rankState{State: w.State, Mode: w.Mode, Error: w.Error}
		for _, r := range w.Ranks {
			s.Held += r.Held
		}
		all[w.Name] = s
	}
	return all
}

// follows waits until a worker is healthy and the gateway reads its events.
func (f *foreignFleet) follows(name string) {
	f.t.Helper()
	f.until("the gateway follows "+name, func() bool {
		r := f.ranks()[name]
		return r.State == "healthy" && r.Mode == "events"
	})
}

// get reads a JSON document of the gateway.
func (f *foreignFleet) get(path string, to any) {
	f.t.Helper()
	resp, err := http.Get(f.url + path)
	if err != nil {
		f.t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(to); err != nil {
		f.t.Fatalf("%s: %v", path, err)
	}
}

// overlaps returns the number of leading blocks of a prompt that each worker holds on its device,
// by the gateway's index. more are further fields of the request.
func (f *foreignFleet) overlaps(tokens []kv.Token, more map[string]any) map[string]int {
	f.t.Helper()
	all := map[string]int{}
	for name, tiers := range f.tiers(tokens, more) {
		all[name] = tiers["device"]
	}
	return all
}

// tiers returns, for each worker and each column of the explanation, a number of blocks.
func (f *foreignFleet) tiers(tokens []kv.Token, more map[string]any) map[string]map[string]int {
	f.t.Helper()
	body := map[string]any{"model": f.model, "prompt": tokens}
	for k, v := range more {
		body[k] = v
	}
	status, _, text := post(f.t, f.url+"/v1/fleet/explain", body)
	if status != http.StatusOK {
		f.t.Fatalf("explain: %d %s", status, text)
	}
	names, all := map[string]string{}, map[string]map[string]int{} // names by the rank in the table
	var columns []string
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		switch {
		case len(words) == 5 && words[1] == "is" && words[3] == "at":
			names[words[0]] = words[2]
		case slices.Contains(words, "device"):
			columns = words
		case columns != nil && len(words) == len(columns):
			row := map[string]int{}
			for i, column := range columns {
				row[column], _ = strconv.Atoi(words[i]) // costs are no whole numbers
			}
			all[names[words[0]]] = row
		}
	}
	if len(all) == 0 || len(all) != len(names) {
		f.t.Fatalf("explained as %s", text)
	}
	return all
}

// post sends a JSON body, or text as it is, and returns the answer.
func post(t *testing.T, url string, body any) (status int, header http.Header, text []byte) {
	t.Helper()
	status, header, text, err := send(url, body)
	if err != nil {
		t.Fatal(err)
	}
	return status, header, text
}

// send does what post does, and may be called from any goroutine.
func send(url string, body any) (status int, header http.Header, text []byte, err error) {
	data, raw := body.(string)
	if !raw {
		b, err := json.Marshal(body)
		if err != nil {
			return 0, nil, nil, err
		}
		data = string(b)
	}
	resp, err := http.Post(url, "application/json", strings.NewReader(data))
	if err != nil {
		return 0, nil, nil, err
	}
	defer resp.Body.Close()
	text, err = io.ReadAll(resp.Body)
	return resp.StatusCode, resp.Header, text, err
}

// computed is the answer to a completion or a chat, with the tokens that vLLM names on request.
type computed struct {
	Worker  string // of the gateway's header
	Overlap int    // blocks that the gateway believed to be cached
	Choices []struct {
		PromptTokens []kv.Token `json:"prompt_token_ids"`
		Tokens       []kv.Token `json:"token_ids"`
	}
	PromptTokens []kv.Token `json:"prompt_token_ids"` // of a chat
	Usage        struct {
		PromptTokens int `json:"prompt_tokens"`
		Details      struct {
			Cached int `json:"cached_tokens"`
		} `json:"prompt_tokens_details"`
	}
}

// prompt returns the tokens of the prompt, as the worker has computed them.
func (c *computed) prompt() []kv.Token {
	if c.PromptTokens != nil {
		return c.PromptTokens
	}
	return c.Choices[0].PromptTokens
}

// ask sends a request through the gateway, asking for the tokens.
func (f *foreignFleet) ask(path string, body map[string]any) computed {
	f.t.Helper()
	body["model"], body["return_token_ids"] = f.model, true
	status, header, text := post(f.t, f.front+path, body)
	if status != http.StatusOK {
		f.t.Fatalf("%s: %d %s", path, status, text)
	}
	c := computed{Worker: header.Get("X-Coppice-Worker")}
	if err := json.Unmarshal(text, &c); err != nil || len(c.Choices) != 1 {
		f.t.Fatalf("%v in %s", err, text)
	}
	var err error
	if c.Overlap, err = strconv.Atoi(header.Get("X-Coppice-Overlap-Blocks")); err != nil {
		f.t.Fatal(err)
	}
	return c
}

// complete asks for a completion of tokens, and settles.
func (f *foreignFleet) complete(tokens []kv.Token, most int) computed {
	f.t.Helper()
	c := f.ask("/v1/completions", map[string]any{"prompt": tokens, "max_tokens": most, "temperature": 0, "ignore_eos": true})
	f.settle(&c)
	return c
}

// settle waits until the gateway has applied the events of an answer: until its worker holds all
// whole blocks that were computed. The last token of an answer is not.
func (f *foreignFleet) settle(c *computed) {
	f.t.Helper()
	known := slices.Concat(c.prompt(), c.Choices[0].Tokens)
	whole := (len(known) - 1) / f.block
	f.until(fmt.Sprintf("the gateway knows the %d blocks that %s has computed", whole, c.Worker), func() bool {
		return f.overlaps(known[:whole*f.block+1], nil)[c.Worker] == whole
	})
}

// exact checks that the gateway's prediction was the worker's own count.
func (f *foreignFleet) exact(what string, c *computed) bool {
	f.t.Helper()
	if c.Overlap*f.block == c.Usage.Details.Cached {
		return true
	}
	f.t.Errorf("%s, %d tokens: %s had %d cached, the gateway believed %d blocks of %d", what, c.Usage.PromptTokens, c.Worker, c.Usage.Details.Cached, c.Overlap, f.block)
	return false
}
