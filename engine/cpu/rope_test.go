package cpu

import (
	"errors"
	"testing"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/engine/model/random"
)

// TestDeferredAfterFailure checks that a deferred row fails if its slot's last sample failed after
// the row was submitted, and that the slot works again after a bind.
func TestDeferredAfterFailure(t *testing.T) {
	b := openTest(t, testModel(t, random.Nano), Config{KVTokens: 64})
	tokens := randomTokens(1, 5, 100)
	row := engine.Row{Tokens: tokens, Pages: pageRange(0, 1), Sample: true, Mask: 1}
	info := b.Info()
	nothing := []engine.MaskSet{{ID: 1, Bits: make([]uint64, info.MaskWords())}}
	first := wait(t, b, &engine.Batch{Seq: 1, Masks: nothing, Rows: []engine.Row{row}})
	if first.Out[0].Err == nil {
		t.Fatal("a row with an empty mask did not fail")
	}
	next := engine.Row{Start: 5, Deferred: true, Pages: pageRange(0, 1), Sample: true}
	if res := wait(t, b, &engine.Batch{Seq: 2, Rows: []engine.Row{next}}); !errors.Is(res.Out[0].Err, engine.ErrLogits) {
		t.Errorf("deferred row after a failure: %v, want ErrLogits", res.Out[0].Err)
	}
	row.Mask = 0
	res := wait(t, b, &engine.Batch{Seq: 3, Binds: []engine.SlotBind{{}}, Rows: []engine.Row{row}})
	if res.Out[0].Err != nil {
		t.Errorf("after a bind: %v", res.Out[0].Err)
	}
}
