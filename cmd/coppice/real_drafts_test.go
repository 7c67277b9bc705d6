package main

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/coppice-llm/coppice"
	"github.com/coppice-llm/coppice/engine/cpu"
	"github.com/coppice-llm/coppice/internal/opticks"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/local"
	"github.com/coppice-llm/coppice/scheduler"
)

// TestRealDrafts checks with real models that requests of all kinds get the same tokens, logit bits, scores, endings and
// bills with drafts and without. With -real it runs 500 prompts at three temperatures for each model.
func TestRealDrafts(t *testing.T) {
	t.Run("short", realDraftsShort)
	if !*realAll {
		return
	}
	for _, m := range []realModel{smol, qwen} {
		t.Run(m.name, func(t *testing.T) { realDraftsAll(t, m) })
	}
}

// realDraftsShort runs thirty requests on SmolLM2 in several ways, for each type of KV.
func realDraftsShort(t *testing.T) {
	path := smol.path(t)
	tok, err := local.Tokenizer(path)
	if err != nil {
		t.Fatal(err)
	}
	text := tok.Encode(nil, opticks.Text())
	for _, d := range cpu.KVTypes() {
		t.Run(d.String(), func(t *testing.T) {
			twins := &draftTwins{}
			count := 5
			if d == kv.F32 {
				count = 30
			}
			for at := range count {
				from := at % 3 * 1000
				twins.add(at, text[from:from+40+4*(at%3)], 16)
			}
			// One node computes them without drafts, and with drafts again when all prompts are cached.
			node := draftNode{backend: "cpu", pageTokens: 16, kvTokens: 8192, kvType: d}.open(t, path).Node
			twins.expect(t, node)
			twins.compare(t, node, nil)
			if twins.likelyConfirmed*2 < twins.likely {
				t.Errorf("%s: too little to prove something", twins)
			}
			if d == kv.F32 {
				small := draftNode{backend: "cpu", pageTokens: 1, kvTokens: 110, cfg: scheduler.Config{MaxInflight: 2, ChunkTokens: 32}}
				twins.compare(t, small.open(t, path).Node, alone)
				if twins.preempted == 0 {
					t.Error("no output was preempted")
				}
			}
			t.Log(twins)
		})
	}
}

// draftsFound is the result of a part of TestRealDrafts.
type draftsFound struct {
	Said   string
	Failed bool
}

// realDraftsAll runs all prompts in small groups, so that a test that was stopped goes on where it was.
func realDraftsAll(t *testing.T, m realModel) {
	const group, most = 2, 24
	path := m.path(t)
	kept := openResults(t, filepath.Join(resultsDir(t), "drafts.jsonl"))
	prompts := makeRealPrompts(t)
	if *realPrompts > 0 {
		prompts = prompts[:min(len(prompts), *realPrompts)]
	}
	var node *local.Model
	for from := 0; from < len(prompts); from += group {
		part := prompts[from:min(from+group, len(prompts))]
		key := fmt.Sprintf("%s %s prompts=%s", m.name, codeKey(t), hashPrompts(part))
		found := keep(kept, key, func() draftsFound {
			if node == nil {
				node = draftNode{backend: "cpu", pageTokens: 16, kvTokens: 8192, kvType: kv.F16}.open(t, path)
			}
			twins := &draftTwins{}
			for i, p := range part {
				tokens := node.Tokenizer().EncodePrompt(nil, p.text)
				for round := range 3 { // the temperatures
					twins.add(from+i+len(draftKinds)*round, tokens, most)
				}
			}
			twins.expect(t, node.Node)
			twins.compare(t, node.Node, nil)
			if from%4 == 0 {
				twins.compare(t, node.Node, func(i int, r *coppice.Request) { alone(i, r); r.PublicTokens = len(r.Tokens) })
			}
			return draftsFound{twins.String(), twins.faults > 0}
		})
		if t.Logf("from prompt %d: %s", from, found.Said); found.Failed {
			t.Errorf("prompts from %d: differences, see the first run", from)
		}
	}
}
