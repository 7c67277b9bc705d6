//go:build unix

package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/coppice-llm/coppice/kv"
)

// TestPeerSimulator: two of llm-d's simulators connect to one port of the gateway, which tells them apart
// by their topics. Each simulator's events give the tokens that it cached, its answers count them. All texts
// have as many blocks, so that whole texts are evicted: the simulator evicts the blocks of a text in any order,
// counts those that it has after one that it has not, and names these as the parents of blocks before them.
func TestPeerSimulator(t *testing.T) {
	dir := peerDir(t, "simulator")
	const block, whole, blocks = 16, 8, 64 // tokens of a block, blocks of a text and of the cache
	ports := freePorts(t, 3)
	var sims []*peer
	var known []foreignWorker
	for i, name := range []string{"one", "two"} {
		url := local("http", ports[i+1])
		sims = append(sims, startPeer(t, "llm-d's simulator "+name, []string{"POD_IP=" + name, "HF_HUB_OFFLINE=1"}, filepath.Join(dir, "llm-d-inference-sim"),
			"--port", strconv.Itoa(ports[i+1]), "--model", "sim", "--force-dummy-tokenizer", "--max-model-len", "4096", "--enable-kvcache", "--kv-cache-size", strconv.Itoa(blocks),
			"--block-size", strconv.Itoa(block), "--event-batch-size", "1", "--hash-seed", "33", "--zmq-endpoint", local("tcp", ports[0])))
		known = append(known, foreignWorker{Name: name, URL: url})
	}
	for i, s := range sims {
		s.answers(known[i].URL + "/health")
	}
	f := launchForeign(t, block, nano, known, "--events", fmt.Sprintf("zmq+bind://127.0.0.1:%d", ports[0]))
	f.process.model = "sim"
	ask := func(w foreignWorker, text string) (cached int) {
		t.Helper()
		status, _, answer := post(t, w.URL+"/v1/completions", map[string]any{"model": "sim", "prompt": text, "max_tokens": 2})
		var got computed
		if err := json.Unmarshal(answer, &got); err != nil || status != http.StatusOK {
			t.Fatalf("%d %s", status, answer)
		}
		return got.Usage.Details.Cached
	}
	text := func(w foreignWorker, what string, n int) string {
		return words(fmt.Sprintf("%s %s %d", w.Name, what, n), 26)
	}
	for _, w := range known { // a simulator drops its events until it has connected, which it tries each second
		n := 0
		f.until("the gateway hears "+w.Name, func() bool {
			n++
			ask(w, text(w, "start", n))
			return f.ranks()[w.Name].Mode == "events"
		})
	}
	texts := map[string][]string{}
	evicted := 0
	for round := range 30 {
		for _, w := range known { // each with texts of its own
			next := text(w, "round", round)
			texts[w.Name] = append(texts[w.Name], next)
			tokens := tokensOf(t, w, next)
			if len(tokens)/block != whole {
				t.Fatalf("a text of %d tokens", len(tokens))
			}
			ask(w, next)
			want := map[string]int{"one": 0, "two": 0}
			want[w.Name] = whole
			f.until("the gateway knows the blocks of "+w.Name+", and that no other worker has them", func() bool {
				return fmt.Sprint(f.overlaps(append(slices.Clone(tokens), 1), nil)) == fmt.Sprint(want)
			})
			old := texts[w.Name][round/3]
			tokens = tokensOf(t, w, old)
			believed := f.overlaps(append(slices.Clone(tokens), 1), nil)[w.Name]
			if cached := ask(w, old); cached/block != believed {
				t.Errorf("round %d: %s finds %d cached tokens, the gateway knows of %d blocks of %d", round, w.Name, cached, believed, block)
			}
			if believed == 0 {
				evicted++
			}
			f.until("the gateway knows them again", func() bool {
				return f.overlaps(append(slices.Clone(tokens), 1), nil)[w.Name] == whole
			})
		}
	}
	if evicted == 0 {
		t.Error("nothing was evicted")
	}
	t.Logf("60 texts, alike; %d texts were evicted and asked for again", evicted)
}

// tokensOf returns the tokens into which a simulator splits a text.
func tokensOf(t *testing.T, w foreignWorker, text string) []kv.Token {
	t.Helper()
	status, _, answer := post(t, w.URL+"/tokenize", map[string]any{"model": "sim", "prompt": text})
	var split struct{ Tokens []kv.Token }
	if err := json.Unmarshal(answer, &split); err != nil || status != http.StatusOK {
		t.Fatalf("%d %s", status, answer)
	}
	return split.Tokens
}
