package cpu

import (
	"errors"
	"math"
	"testing"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/kv"
)

// TestLargestValuesAreRefused uses numbers that would become negative where int has 32 bits
// (GOARCH=386 go test).
func TestLargestValuesAreRefused(t *testing.T) {
	b := openTest(t, testModel(t, "nano"), Config{KVTokens: 64})
	good := engine.Row{Tokens: []kv.Token{1}, Pages: pageRange(0, 1), Sample: true}
	token, start := good, good
	token.Tokens = []kv.Token{math.MaxUint32}
	start.Start, start.Pages = math.MaxInt32, nil
	bias := engine.SlotBind{Sampling: engine.SamplingParams{Bias: []engine.TokenBias{{Token: math.MaxUint32}}}}
	before := engine.NewSubmitted(&b.info)
	for name, batch := range map[string]*engine.Batch{
		"token": {Seq: 1, Rows: []engine.Row{token}},
		"start": {Seq: 1, Rows: []engine.Row{start}},
		"bias":  {Seq: 1, Binds: []engine.SlotBind{bias}, Rows: []engine.Row{good}},
	} {
		if err := batch.Validate(&b.info, 0, &before); !errors.Is(err, engine.ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", name, err)
		}
	}
	// A penalised token beyond the vocabulary must be ignored, not used as an index.
	counted := engine.SlotBind{Sampling: engine.SamplingParams{PresencePenalty: 1}, Output: []kv.Token{math.MaxUint32}}
	wait(t, b, &engine.Batch{Seq: 1, Binds: []engine.SlotBind{counted}, Rows: []engine.Row{good}})
}
