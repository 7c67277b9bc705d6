package engine

import (
	"slices"

	"github.com/coppice-llm/coppice/kv"
)

// Tables are the page tables of slots in host memory. An update costs as much as its
// new pages, however long the tables are.
type Tables struct{ pages [][]kv.PageID }

// NewTables returns empty tables for slots [0, slots).
func NewTables(slots int) Tables { return Tables{make([][]kv.PageID, slots)} }

// Of returns a slot's table, valid until the next Apply.
func (t Tables) Of(s Slot) []kv.PageID { return t.pages[s] }

// Apply applies a valid batch: its binds, then the pages of its rows, then its swaps.
func (t Tables) Apply(b *Batch) {
	for i := range b.Binds {
		s := b.Binds[i].Slot
		t.pages[s] = append(t.pages[s][:0], b.Binds[i].Pages...)
	}
	for i := range b.Rows {
		if r := &b.Rows[i]; len(r.Pages) > 0 {
			t.pages[r.Slot] = append(t.pages[r.Slot], r.Pages...)
		}
	}
	for _, w := range b.Swaps {
		t.pages[w.Slot][w.At] = w.Page
	}
}

// Listed wraps b for a caller that does not track page tables. The caller lists all pages that a
// row needs in Row.Pages, by ascending position, and no pages in a SlotBind. Listed drops the
// pages that the slot's table already has, and adds a PageSwap for each entry that differs.
func Listed(b Backend) Backend {
	return &listed{b, NewTables(b.Info().MaxSlots)}
}

type listed struct {
	Backend
	tables Tables
}

// Submit implements Backend.
func (l *listed) Submit(b *Batch) (Ticket, error) {
	c := *b
	c.Rows, c.Swaps = slices.Clone(b.Rows), slices.Clone(b.Swaps)
	grown := map[Slot]int{} // by earlier rows of the batch
	for i := range c.Rows {
		r := &c.Rows[i]
		if r.Slot < 0 || int(r.Slot) >= len(l.tables.pages) {
			continue // the backend refuses it
		}
		has := l.tables.pages[r.Slot]
		if slices.ContainsFunc(b.Binds, func(s SlotBind) bool { return s.Slot == r.Slot }) {
			has = nil
		}
		for at := range min(len(has), len(r.Pages)) {
			if has[at] != r.Pages[at] {
				c.Swaps = append(c.Swaps, PageSwap{r.Slot, int32(at), r.Pages[at]})
			}
		}
		all := len(r.Pages)
		r.Pages = r.Pages[min(max(len(has), grown[r.Slot]), all):]
		grown[r.Slot] = max(grown[r.Slot], all)
	}
	t, err := l.Backend.Submit(&c)
	if err == nil {
		l.tables.Apply(&c)
	}
	return t, err
}

// Masks are the masks of a backend that samples in host memory.
type Masks struct{ bits [][]uint64 }

// NewMasks returns masks with the ids 1 to n, none of them set. It allocates n slice headers; each
// set mask takes its bits in addition.
func NewMasks(n int) Masks { return Masks{make([][]uint64, n+1)} }

// Of returns the bits of mask id, valid until the next Apply. It returns nil for id 0, which
// allows all tokens, and for a mask that is not set.
func (m Masks) Of(id MaskID) []uint64 { return m.bits[id] }

// Apply drops and sets the masks of a valid batch. It copies the bits.
func (m Masks) Apply(b *Batch) {
	for _, id := range b.Drops {
		m.bits[id] = nil
	}
	for i := range b.Masks {
		id := b.Masks[i].ID
		m.bits[id] = append(m.bits[id][:0], b.Masks[i].Bits...)
	}
}
