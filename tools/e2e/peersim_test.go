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
// by their topics. Each simulator's events give the tokens that it cached, its answers count them.
func TestPeerSimulator(t *testing.T) {
	dir := peerDir(t, "simulator")
	const block, blocks = 16, 64
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
	texts := map[string][]string{}
	evicted := 0
	for round := range 10 {
		for _, w := range known { // each with texts of its own
			text := words(fmt.Sprintf("%s of round %d", w.Name, round), 30+10*(round%4))
			texts[w.Name] = append(texts[w.Name], text)
			tokens := tokensOf(t, w, text)
			ask(w, text)
			want := map[string]int{"one": 0, "two": 0}
			want[w.Name] = len(tokens) / block
			f.until(fmt.Sprintf("the gateway knows the %d blocks of %s, and that no other worker has them", want[w.Name], w.Name), func() bool {
				return fmt.Sprint(f.overlaps(append(slices.Clone(tokens), 1), nil)) == fmt.Sprint(want)
			})
			old := texts[w.Name][round*2/3]
			tokens = tokensOf(t, w, old)
			believed := f.overlaps(append(slices.Clone(tokens), 1), nil)[w.Name]
			if cached := ask(w, old); cached/block != believed {
				t.Errorf("round %d: %s finds %d cached tokens, the gateway knows of %d blocks of %d", round, w.Name, cached, believed, block)
			}
			if believed < len(tokens)/block {
				evicted++
			}
			f.until("the gateway knows them again", func() bool {
				return f.overlaps(append(slices.Clone(tokens), 1), nil)[w.Name] == len(tokens)/block
			})
		}
	}
	if evicted == 0 {
		t.Error("nothing was evicted")
	}
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
