package enginetest

import (
	"errors"
	"fmt"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/kv"
)

// checkTables fills a slot's page table in parts: some pages with the bind, some with a later
// chunk, one with the token that needs it. Then it replaces a page of the table by a copy and
// uses the old page for something else, binds the slot again to other pages, and checks that a
// refused batch leaves the table as it was.
func checkTables(h *harness) {
	const steps, page = 9, 4
	reqs := h.requests(3, steps)
	r := h.openRaw(usual(page))
	for i, q := range reqs[1:] {
		s := &tabled{r: r, sequence: r.sequence(2, q.params, q.prompt, steps)}
		s.run(9)
		for len(s.out) < 2 {
			s.run(100)
		}
		s.swap(i)
		s.refused()
		for len(s.out) < steps {
			s.run(1)
		}
		equal(fmt.Sprintf("request %d", i), s.out, q.want)
	}
}

// tabled is a sequence whose rows list only the pages that its slot's table lacks.
type tabled struct {
	*sequence
	r        *rig
	tableLen int  // number of pages in the slot's table
	bound    bool // bound by an earlier batch
	swaps    []engine.PageSwap
}

// next builds a batch that runs up to n tokens.
func (s *tabled) next(n int) *engine.Batch {
	b := &engine.Batch{Swaps: s.swaps}
	if !s.bound {
		s.tableLen = 1
		bind := s.bind()
		bind.Pages = s.pages[:1]
		b.Binds = append(b.Binds, bind)
	}
	row := s.row(&s.r.info, n)
	need := max(len(row.Pages), s.tableLen)
	row.Pages = s.pages[s.tableLen:need]
	b.Rows = append(b.Rows, row)
	return b
}

func (s *tabled) run(n int) {
	b := s.next(n)
	s.tableLen += len(b.Rows[0].Pages)
	s.bound, s.swaps = true, nil
	s.take(b, s.r.run(b), 0)
}

// swap copies the second page to a fresh one, replaces it in the table, and lets another
// sequence overwrite the old page.
func (s *tabled) swap(seed int) {
	old, fresh := s.pages[1], s.r.pages(1)[0]
	s.r.run(&engine.Batch{Copies: []engine.PageCopy{{Src: old, Dst: fresh, Tokens: int32(s.r.info.PageTokens)}}})
	s.pages[1] = fresh
	s.swaps = []engine.PageSwap{{Slot: s.slot, At: 1, Page: fresh}}
	s.run(1)
	other := s.r.tokens(uint64(seed+70), s.r.info.PageTokens)
	s.r.run(&engine.Batch{
		Binds: []engine.SlotBind{{Slot: s.slot + 1, Pages: []kv.PageID{old}}},
		Rows:  []engine.Row{{Slot: s.slot + 1, Tokens: other}},
	})
}

// refused submits batches with invalid page lists, and fails if one is not refused.
func (s *tabled) refused() {
	for name, spoil := range map[string]func(b *engine.Batch){
		"a page past the pool in a bind": func(b *engine.Batch) {
			b.Binds = []engine.SlotBind{{Slot: s.slot, Pages: []kv.PageID{kv.PageID(s.r.info.NumPages)}}}
		},
		"a bind without the pages of its row": func(b *engine.Batch) { b.Binds = []engine.SlotBind{{Slot: s.slot}} },
		"a swap past the table": func(b *engine.Batch) {
			b.Swaps = []engine.PageSwap{{Slot: s.slot, At: int32(len(s.pages)), Page: s.pages[0]}}
		},
		"a swap at -1":      func(b *engine.Batch) { b.Swaps = []engine.PageSwap{{Slot: s.slot, At: -1, Page: s.pages[0]}} },
		"a swap to no page": func(b *engine.Batch) { b.Swaps = []engine.PageSwap{{Slot: s.slot, Page: kv.NoPage}} },
		"a swap of no slot": func(b *engine.Batch) { b.Swaps = []engine.PageSwap{{Slot: engine.Slot(s.r.info.MaxSlots)}} },
		"pages past the last position": func(b *engine.Batch) {
			b.Rows[0].Pages = make([]kv.PageID, kv.CeilPages(s.r.info.MaxPositions, s.r.info.PageTokens))
		},
	} {
		ran := s.ran
		b := s.next(1)
		s.ran = ran
		spoil(b)
		if _, err := s.r.submit(b); !errors.Is(err, engine.ErrInvalid) {
			failf("a batch with %s: %v, want ErrInvalid", name, err)
		}
		s.r.seq--
	}
}

func tableControls() []control {
	return []control{
		{"page-tables", "forgets swaps", with(broken{batch: func(_ *broken, x *engine.Batch) { x.Swaps = nil }})},
		{"page-tables", "keeps the first page of a bound slot", with(broken{batch: func(b *broken, x *engine.Batch) {
			for i := range x.Binds {
				if s := &x.Binds[i]; b.slots[s.Slot] && len(s.Pages) > 0 {
					s.Pages = append([]kv.PageID{0}, s.Pages[1:]...)
				} else {
					b.slots[s.Slot] = true
				}
			}
		}})},
		{"page-tables", "appends to the front", with(eachRow(func(b *broken, r *engine.Row, _ int, x *engine.Batch) {
			if n := len(r.Pages); n > 1 {
				r.Pages = append([]kv.PageID{r.Pages[n-1]}, r.Pages[:n-1]...)
				x.Swaps = append(x.Swaps, engine.PageSwap{Slot: r.Slot, At: 0, Page: r.Pages[0]})
			}
		}))},
	}
}
