package sim

import (
	"bytes"
	"errors"
	"testing"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/kv"
)

// TestLentBatch checks that a change to any slice of a batch in flight loses the device, and that
// appends to the slices and writes after the end do not.
func TestLentBatch(t *testing.T) {
	whole := func() *engine.Batch {
		return &engine.Batch{
			Seq: 1, After: []engine.MoveID{9}, Drops: []engine.MaskID{2},
			Binds: []engine.SlotBind{{Slot: 1, Sampling: engine.SamplingParams{Bias: []engine.TokenBias{{Token: 3, Bias: 1}}},
				Pages: []kv.PageID{0}, Prompt: tokens(1, 2), Output: tokens(1, 1)}},
			Swaps: []engine.PageSwap{{Slot: 1, Page: 1}}, Copies: []engine.PageCopy{{Src: 3, Dst: 4, Tokens: 1}},
			Masks: []engine.MaskSet{{ID: 1, Bits: []uint64{^uint64(0), ^uint64(0)}}},
			Rows:  []engine.Row{{Slot: 1, Tokens: tokens(1, 3), Pages: []kv.PageID{2}, Sample: true, Mask: 1, Drafts: tokens(1, 1), DraftMasks: []engine.MaskID{1}}},
		}
	}
	changes := map[string]func(b *engine.Batch){
		"after": func(b *engine.Batch) { b.After[0]++ }, "drops": func(b *engine.Batch) { b.Drops[0]++ },
		"bind's slot": func(b *engine.Batch) { b.Binds[0].Slot++ }, "bind's pages": func(b *engine.Batch) { b.Binds[0].Pages[0] = kv.NoPage },
		"bias": func(b *engine.Batch) { b.Binds[0].Sampling.Bias[0].Token++ }, "sampling": func(b *engine.Batch) { b.Binds[0].Sampling.Seed++ },
		"prompt": func(b *engine.Batch) { b.Binds[0].Prompt[1]++ }, "output": func(b *engine.Batch) { b.Binds[0].Output[0]++ },
		"swaps": func(b *engine.Batch) { b.Swaps[0].At++ }, "copies": func(b *engine.Batch) { b.Copies[0].Dst++ },
		"mask": func(b *engine.Batch) { b.Masks[0].Bits[1]-- }, "tokens": func(b *engine.Batch) { b.Rows[0].Tokens[2]++ },
		"pages": func(b *engine.Batch) { b.Rows[0].Pages[0]++ }, "row": func(b *engine.Batch) { b.Rows[0].Sample = false },
		"drafts": func(b *engine.Batch) { b.Rows[0].Drafts[0]++ }, "masks of drafts": func(b *engine.Batch) { b.Rows[0].DraftMasks[0]++ },
		"fewer rows": func(b *engine.Batch) { b.Rows = b.Rows[:0] }, "reset": func(b *engine.Batch) { *b = engine.Batch{} },
	}
	for name, change := range changes {
		if whole, same := whole(), whole(); sumBatch(whole) != sumBatch(same) {
			t.Fatal("two equal batches have two sums")
		} else if change(same); sumBatch(whole) == sumBatch(same) {
			t.Errorf("%s: a change keeps the sum", name)
		}
	}
	for _, when := range []string{"never", "in flight", "at the end"} {
		d := newBed(t, Config{})
		b := &engine.Batch{Seq: 1, Rows: []engine.Row{prefill(0, append(make([]kv.Token, 0, 8), tokens(1, 4)...), 0, 1)}}
		ticket, err := d.b.Submit(b)
		if err != nil {
			t.Fatal(err)
		}
		_ = append(b.Rows[0].Tokens, 7) // sequences grow while their rows are in flight
		if when == "in flight" {
			b.Rows[0].Pages[1] = kv.NoPage
		}
		for d.clock.Step() {
		}
		b.Rows[0].Pages[0] = kv.NoPage
		if _, err := ticket.Result(); errors.Is(err, ErrCorrupt) != (when == "in flight") {
			t.Errorf("a batch that changes %s: %v", when, err)
		}
	}
}

// TestLentMemory checks that the host memory of a move must be left alone until the move's end: a
// change loses the device, and a read finds no KV.
func TestLentMemory(t *testing.T) {
	d, host := saved(t, Config{})
	kept := bytes.Clone(host)
	d.move(2, toHost, 0, host)
	if bytes.Equal(host, kept) {
		t.Error("the memory has the KV before the move to the host has ended")
	}
	for d.clock.Step() {
	}
	if !bytes.Equal(host, kept) {
		t.Error("the memory lacks the KV after the move")
	}
	for _, way := range []direction{toHost, fromHost} {
		d, host := saved(t, Config{})
		d.move(2, way, 5, host)
		host[3]++
		for d.clock.Step() {
		}
		if _, err := d.b.Submit(&engine.Batch{Seq: 9}); !errors.Is(err, ErrCorrupt) {
			t.Errorf("a move fromHost=%v whose memory is changed: %v", way, err)
		}
	}
}
