package scheduler

import (
	"testing"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/internal/invariants"
)

// TestDecodingDoesNotAllocate checks that planning and completing a step of decode rows
// allocates nothing, with or without waiting requests and drafts, and when sequences need pages.
func TestDecodingDoesNotAllocate(t *testing.T) {
	if invariants.Enabled {
		t.Skip("the walks of the tag allocate")
	}
	for policy, speculate := range map[Policy]Speculate{FCFS: SpeculateOff, LPM: 4, DLPM: SpeculateAuto, HRRN: SpeculateOff} {
		l := newLoaded(t, Config{Policy: policy, Speculate: speculate}, 64, 200, 256)
		for range 3 {
			l.complete(l.s.Next(0))
		}
		if n := testing.AllocsPerRun(100, func() { l.complete(l.s.Next(0)) }); n != 0 {
			t.Errorf("%v: %v allocations a step", policy, n)
		}
	}
}

// TestMaskedRowsDoNotAllocate checks that planning and completing a step allocates nothing
// if the backend has the masks of all rows already.
func TestMaskedRowsDoNotAllocate(t *testing.T) {
	if invariants.Enabled {
		t.Skip("the walks of the tag allocate")
	}
	b, vocab := formatBed(t)
	for id := range RequestID(4) {
		if err := b.s.Add(0, Request{ID: id + 1, Prompt: seq(int(id), 20), MaxTokens: 100, Format: compiled(t, vocab, "[a-f]*")}); err != nil {
			t.Fatal(err)
		}
		if err := b.s.Add(0, Request{ID: id + 10, Prompt: seq(int(id), 20), MaxTokens: 100, AllowedTokens: seq(65, 5)}); err != nil {
			t.Fatal(err)
		}
	}
	l := loaded{s: b.s}
	step := func() {
		p := b.s.Next(0)
		l.res.Seq, l.res.Out = p.Batch.Seq, l.res.Out[:0]
		for i := range p.Batch.Rows {
			l.res.Out = append(l.res.Out, engine.RowOut{Row: i, Token: 'a' - 32})
		}
		l.out = b.s.Complete(0, p, &l.res, l.out[:0])
	}
	for range 4 {
		step()
	}
	if n := testing.AllocsPerRun(40, step); n != 0 {
		t.Errorf("%v allocations a step", n)
	}
}
