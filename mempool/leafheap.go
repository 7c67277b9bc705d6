package mempool

// leafHeap is a binary heap of the leaves of an [Index], the least recently used first.
// An entry stands in two of them, of all leaves (0) and of its namespace (1), and knows
// its place in each.
type leafHeap struct {
	which int
	ids   []int32
}

// enter puts an entry into its heaps if it may be a victim.
func (ix *Index) enter(i int32) {
	e := &ix.entries[i]
	if e.children > 0 || e.pins > 0 || e.heapAt[0] != none {
		return
	}
	for _, h := range [...]*leafHeap{&ix.leaves, &e.space.leaves} {
		e.heapAt[h.which] = int32(len(h.ids))
		h.ids = append(h.ids, i)
		ix.up(h, len(h.ids)-1)
	}
}

// leave takes an entry out of its heaps, if it is there.
func (ix *Index) leave(i int32) {
	e := &ix.entries[i]
	if e.heapAt[0] == none {
		return
	}
	for _, h := range [...]*leafHeap{&ix.leaves, &e.space.leaves} {
		at, last := int(e.heapAt[h.which]), len(h.ids)-1
		ix.swap(h, at, last)
		h.ids = h.ids[:last]
		e.heapAt[h.which] = none
		if at < last {
			ix.up(h, at)
			ix.down(h, at)
		}
	}
}

// fix restores the order after an entry was used.
func (ix *Index) fix(i int32) {
	e := &ix.entries[i]
	if e.heapAt[0] == none {
		return
	}
	for _, h := range [...]*leafHeap{&ix.leaves, &e.space.leaves} {
		ix.down(h, int(e.heapAt[h.which]))
	}
}

func (ix *Index) swap(h *leafHeap, a, b int) {
	h.ids[a], h.ids[b] = h.ids[b], h.ids[a]
	ix.entries[h.ids[a]].heapAt[h.which] = int32(a)
	ix.entries[h.ids[b]].heapAt[h.which] = int32(b)
}

func (ix *Index) before(h *leafHeap, a, b int) bool {
	return ix.entries[h.ids[a]].used < ix.entries[h.ids[b]].used
}

func (ix *Index) up(h *leafHeap, at int) {
	for at > 0 && ix.before(h, at, (at-1)/2) {
		ix.swap(h, at, (at-1)/2)
		at = (at - 1) / 2
	}
}

func (ix *Index) down(h *leafHeap, at int) {
	for {
		least := at
		for c := 2*at + 1; c <= 2*at+2 && c < len(h.ids); c++ {
			if ix.before(h, c, least) {
				least = c
			}
		}
		if least == at {
			return
		}
		ix.swap(h, at, least)
		at = least
	}
}
