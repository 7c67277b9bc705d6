package cpu

import (
	"sync/atomic"
	"testing"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/kv"
)

// TestAbortInHead checks that the head looks at abort before each part of MaxRows tokens:
// prompt log-probabilities of a whole chunk can take longer than its layers.
func TestAbortInHead(t *testing.T) {
	m := testModel(t, "nano")
	b := openTest(t, m, Config{KVTokens: 128, MaxRows: 1})
	row := engine.Row{Tokens: randomTokens(1, 100, 300), Pages: pageRange(0, kv.CeilPages(100, 16)), PromptLogprobs: true}
	batch := &engine.Batch{Seq: 1, Rows: []engine.Row{row}}
	wait(t, b, batch)
	var abort atomic.Bool
	s := b.step // idle from here on
	s.load(batch)
	if !s.forward(&abort) {
		t.Fatal("aborted unasked")
	}
	res := &engine.Result{Out: s.outcome()}
	abort.Store(true)
	if s.sample(res, new(engine.StepStats), &abort) || len(res.Out[0].Prompt) != 0 {
		t.Errorf("after abort the head went on for %d tokens", len(res.Out[0].Prompt))
	}
}
