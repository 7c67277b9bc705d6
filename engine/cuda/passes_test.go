package cuda_test

import (
	"errors"
	"flag"
	"reflect"
	"testing"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/engine/cuda"
	"github.com/coppice-llm/coppice/engine/cuda/cudrv/vm"
	"github.com/coppice-llm/coppice/engine/cuda/ptxvm"
	"github.com/coppice-llm/coppice/engine/model"
	"github.com/coppice-llm/coppice/kv"
)

// TestAttentionPasses checks that bits do not depend on how attention is cut into launches: prompts by
// split on a device with idle multiprocessors, and several passes if states of splits have little memory.
func TestAttentionPasses(t *testing.T) {
	base := vm.New(ptxvm.Config{MemoryBytes: 64 << 20})
	x := decodeRun{prompts: [3]int{261, 259, 257}, common: 256, share: true}
	narrow := &counting{Driver: base}
	want, _ := x.on(t, narrow)
	if narrow.prefillBytes == 0 {
		t.Error("on a device with one multiprocessor no prompt is computed by one block for all splits")
	}
	wide := &counting{Driver: base, wide: 132}
	for _, states := range []int{0, 5000} { // a token of two splits takes 2·288 bytes in a layer
		x.states = states
		got, steps := x.on(t, wide)
		if !reflect.DeepEqual(got, want) {
			t.Errorf("by split, %d bytes for states: %+v\nwant %+v", states, got, want)
		}
		if n := wide.prefillBytes; n != 0 {
			t.Errorf("%d bytes are loaded by blocks for all splits, on a device with idle multiprocessors", n)
		}
		if states > 0 && steps[0].kernels < 100 {
			t.Errorf("%d kernels for prompts with little memory for states, too few for several passes", steps[0].kernels)
		}
	}
	x.states = 600
	if got, steps := x.on(t, narrow); !reflect.DeepEqual(got, want) || steps[1].graphs != 0 {
		t.Errorf("decoding in passes of one token: %+v\nwant %+v; %+v", got, want, steps[1])
	}
}

// TestStepWithoutMemory makes a step fail for lack of memory at the calls that it makes. The step binds a
// slot, copies a page and sets a mask for rows of the next step, which must have the same outputs as
// without a failure. The row of the step fails, and so does the row of the next step that defers to it.
func TestStepWithoutMemory(t *testing.T) {
	m, err := model.Open(nanoDir)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	base := vm.New(ptxvm.Config{MemoryBytes: 16 << 20})
	run := func(failAt int) (out [3][]engine.RowOut, calls [3]int, f *faulty) {
		f = &faulty{Driver: base, failure: outOfMemory, failAt: failAt}
		b, err := cuda.Open(m, cuda.Config{Driver: f, Pages: 8, MaxSlots: 3, MaxRows: 3, MaxTokens: 64, NoGraphs: true})
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		tokens := []kv.Token{5, 9, 2, 7, 1, 4, 8, 3, 6, 11}
		deferred := func(slot engine.Slot, start int32) engine.Row {
			return engine.Row{Slot: slot, Start: start, Deferred: true, Sample: true, Digest: true, SampleIndex: 1}
		}
		masked, penalised := deferred(1, 10), engine.Row{Slot: 2, Start: 10, Tokens: tokens[:1], Sample: true, Digest: true}
		masked.Mask = 2
		for i, batch := range []*engine.Batch{
			{Binds: []engine.SlotBind{{Slot: 0, Pages: []kv.PageID{3}}, {Slot: 1, Pages: []kv.PageID{5}}},
				Rows: []engine.Row{{Slot: 0, Tokens: tokens, Sample: true}, {Slot: 1, Tokens: tokens, Sample: true}}},
			{Binds: []engine.SlotBind{{Slot: 2, Pages: []kv.PageID{6}, Prompt: tokens, Sampling: engine.SamplingParams{RepetitionPenalty: 2, TopLogprobs: 1}}},
				Copies: []engine.PageCopy{{Src: 5, Dst: 6, Tokens: 10}}, Masks: []engine.MaskSet{{ID: 2, Bits: []uint64{0, 0xff0, 0, 0, 0}}},
				Rows: []engine.Row{deferred(0, 10)}},
			{Rows: []engine.Row{masked, penalised, deferred(0, 11)}},
		} {
			batch.Seq = uint64(i + 1)
			ticket, err := b.Submit(batch)
			if err != nil {
				t.Fatal(err)
			}
			<-ticket.Done()
			res, err := ticket.Result()
			if err != nil {
				t.Fatalf("batch %d, %v", i, err)
			}
			out[i], calls[i] = res.Out, f.calls
		}
		return out, calls, f
	}
	want, calls, _ := run(0)
	for at := calls[0] + 1; at <= calls[1]-2; at += *memoryCalls { // the last two record an event and wait for it
		got, _, f := run(at)
		if !errors.Is(got[1][0].Err, engine.ErrMemory) || !errors.Is(got[2][2].Err, engine.ErrLogits) {
			t.Errorf("out of memory at call %d, %s: %+v, then %+v", at, f.opened.failed, got[1], got[2][2])
		}
		if !reflect.DeepEqual(got[2][:2], want[2][:2]) {
			t.Errorf("after lack of memory at call %d, %s: %+v\nwant %+v", at, f.opened.failed, got[2][:2], want[2][:2])
		}
	}
}

var memoryCalls = flag.Int("step-memory", 5, "for TestStepWithoutMemory: every such call of the driver fails; 1: each")
