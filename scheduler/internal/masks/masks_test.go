package masks

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/grammar"
	"github.com/coppice-llm/coppice/kv"
)

// TestTable plays plans of random rows, up to three in flight, on a table with no more
// ids than the rows can name, with a backend that keeps masks as package engine defines.
// Each row must find its own bits when its batch runs, and again when it completes.
func TestTable(t *testing.T) {
	const rows, inflight, words = 5, 3, 2
	info := engine.Info{Name: "null", Vocab: 64 * words, MaxPositions: 64, PageTokens: 16, NumPages: 8, MaxSlots: 1,
		MaxRows: rows, MaxTokens: rows, MaxInflight: inflight, MaxMasks: rows * inflight}
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 1))
		table, sent, device := New(&info, rows*inflight), engine.NewSubmitted(&info), engine.NewMasks(info.MaxMasks)
		different := 3 + rng.IntN(60)
		fixed := make([]Fixed, 6)
		for i := range fixed {
			fixed[i].Bits = []uint64{1 << i, uint64(i)}
		}
		var plans []*engine.Batch
		want := map[*engine.Batch][][]uint64{}
		complete := func() {
			p := plans[0]
			plans = plans[1:]
			device.Apply(p)
			for i, bits := range want[p] {
				if id := p.Rows[i].Mask; !slices.Equal(device.Of(id), bits) || !slices.Equal(table.kept[id].bits, bits) {
					t.Fatalf("seed %d, plan %d, row %d: mask %d has %x, want %x", seed, p.Seq, i, id, device.Of(id), bits)
				}
				table.Done(p.Rows[i].Mask)
			}
		}
		for seq := uint64(1); seq < 3000; seq++ {
			p := &engine.Batch{Seq: seq}
			if rng.IntN(400) == 0 {
				p.Seq += maskLife
				seq += maskLife
			}
			for range rng.IntN(rows + 1) {
				r := engine.Row{Tokens: []kv.Token{1}, Sample: true}
				bits := []uint64{rng.Uint64N(uint64(different)), 7}
				if f := &fixed[rng.IntN(len(fixed))]; rng.IntN(3) == 0 {
					r.Mask, bits = table.Fixed(p, f), f.Bits
				} else {
					r.Mask = table.name(p, table.find(p, bits).id)
				}
				p.Rows = append(p.Rows, r)
				want[p] = append(want[p], bits)
			}
			table.Expire(p)
			p.Binds = []engine.SlotBind{{Pages: make([]kv.PageID, 1)}}
			if err := p.Validate(&info, 0, &sent); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			sent.Take(p)
			plans = append(plans, p)
			if err := table.Check(plans); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			for len(plans) == inflight || len(plans) > 0 && rng.IntN(2) == 0 {
				complete()
			}
		}
	}
}

// TestFormatsAreForgotten checks that the table stays within its bounds for any number of
// formats and stop tokens.
func TestFormatsAreForgotten(t *testing.T) {
	table, format := New(&engine.Info{Vocab: 64, MaxMasks: 4}, 4), new(grammar.Grammar)
	for i := range 2*mostFormats + 5 {
		f := table.Format(format, []kv.Token{kv.Token(i)}, false)
		if f != table.Format(format, []kv.Token{kv.Token(i)}, false) {
			t.Fatal("equal requests share nothing")
		}
		for state := range uint64(mostStates + 2) {
			f.remember(State{state, 1}, place{})
		}
		if len(table.formats) > mostFormats || len(f.places) > mostStates {
			t.Fatalf("%d formats, %d states are remembered", len(table.formats), len(f.places))
		}
	}
}

// TestMasksAreDropped checks that a mask that no row has named for long is dropped.
func TestMasksAreDropped(t *testing.T) {
	info := engine.Info{Vocab: 64, MaxMasks: 4}
	table := New(&info, 4)
	first := engine.Batch{Seq: 1}
	for i := range uint64(3) {
		table.Done(table.name(&first, table.find(&first, []uint64{i + 1}).id))
	}
	for seq, want := range map[uint64]int{maskLife: 0, maskLife + 1: 1} {
		b := engine.Batch{Seq: seq}
		table.Expire(&b)
		if len(b.Drops) != want {
			t.Errorf("at plan %d masks %v are dropped, want %d", seq, b.Drops, want)
		}
	}
	again := engine.Batch{Seq: maskLife + 2}
	if id := table.find(&again, []uint64{1}).id; id != 1 || len(again.Masks) != 1 {
		t.Errorf("a dropped mask gets id %d and is set in %v", id, again.Masks)
	}
}
