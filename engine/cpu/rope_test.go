package cpu

import (
	"errors"
	"math"
	"testing"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/engine/model"
)

func TestFrequencies(t *testing.T) {
	for _, theta := range []float64{1e4, 5e5, 1e6} {
		for _, half := range []int{8, 32, 40, 64} {
			for i, got := range inversePowers(theta, half) {
				want := math.Pow(theta, -float64(i)/float64(half))
				if math.Abs(got-want) > 2e-15*want { // math.Pow errs by several ulp
					t.Fatalf("θ %v, %d of %d: %v, want %v", theta, i, half, got, want)
				}
			}
		}
	}
}

// TestStretch has the three ranges of Llama 3.1's scaling and their seams.
func TestStretch(t *testing.T) {
	s := &model.RopeScaling{Factor: 8, LowFreqFactor: 1, HighFreqFactor: 4, OriginalMaxPositions: 8192}
	freq := func(wave float64) float64 { return 2 * math.Pi / wave }
	for _, c := range []struct{ wave, want float64 }{
		{100, 1}, {2047, 1}, {8193, 1.0 / 8}, {1e6, 1.0 / 8},
		{4096, (1-1.0/3)/8 + 1.0/3}, // (8192/4096 - 1)/(4 - 1) = 1/3
	} {
		if got := stretch(freq(c.wave), s) / freq(c.wave); math.Abs(got-c.want) > 1e-12 {
			t.Errorf("wavelength %v: factor %v, want %v", c.wave, got, c.want)
		}
	}
}

// TestDeferredAfterFailure: a row whose last sample failed while it was in flight
// fails too, and the slot is sound again after a bind.
func TestDeferredAfterFailure(t *testing.T) {
	b := openTest(t, testModel(t, model.Nano), Config{KVTokens: 64})
	tokens := randomTokens(1, 5, 100)
	row := engine.Row{Tokens: tokens, Pages: pageRange(0, 1), Sample: true, Mask: make([]uint64, (b.Info().Vocab+63)/64)}
	first := wait(t, b, &engine.Batch{Seq: 1, Rows: []engine.Row{row}})
	if first.Out[0].Err == nil {
		t.Fatal("a row with an empty mask did not fail")
	}
	next := engine.Row{Start: 5, Deferred: true, Pages: pageRange(0, 1), Sample: true}
	if res := wait(t, b, &engine.Batch{Seq: 2, Rows: []engine.Row{next}}); !errors.Is(res.Out[0].Err, engine.ErrLogits) {
		t.Errorf("deferred row after a failure: %v, want ErrLogits", res.Out[0].Err)
	}
	row.Mask = nil
	res := wait(t, b, &engine.Batch{Seq: 3, Binds: []engine.SlotBind{{}}, Rows: []engine.Row{row}})
	if res.Out[0].Err != nil {
		t.Errorf("after a bind: %v", res.Out[0].Err)
	}
}
