package cpu

import (
	"testing"

	"github.com/coppice-llm/coppice/engine"
)

// TestBiasIsTheCallersAgain checks rule 4 of package engine: once a ticket is done, the caller
// owns the batch and its slices again, and writing to them changes no later result.
func TestBiasIsTheCallersAgain(t *testing.T) {
	b := openTest(t, testModel(t, "nano"), Config{KVTokens: 64})
	bias := []engine.TokenBias{{Token: 77, Bias: 1e4}}
	row := engine.Row{Tokens: randomTokens(1, 5, 100), Pages: pageRange(0, 1), Sample: true}
	wait(t, b, &engine.Batch{Seq: 1, Binds: []engine.SlotBind{{Sampling: engine.SamplingParams{Bias: bias}}}, Rows: []engine.Row{row}})
	bias[0].Token = 78 // the caller reuses the slice for another request
	next := engine.Row{Start: 5, Deferred: true, Pages: pageRange(0, 1), Sample: true}
	if got := wait(t, b, &engine.Batch{Seq: 2, Rows: []engine.Row{next}}).Out[0].Token; got != 77 {
		t.Errorf("sampled token %d, the bias that was bound forces 77", got)
	}
}
