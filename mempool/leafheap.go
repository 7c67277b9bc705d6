package mempool

import "github.com/coppice-llm/coppice/internal/heap"

// leaf is an entry of an [Index] that may be a victim, the least recently used first.
type leaf struct {
	used  uint64
	entry int32
}

// Before implements heap.Element.
func (l leaf) Before(m leaf) bool { return l.used < m.used }

// leafPlaces notes in the entries where leaves stand in a heap: of all leaves (0) or of their
// namespace (1).
type leafPlaces struct {
	ix    *Index
	which int
}

// Place implements heap.Places.
func (p leafPlaces) Place(l leaf, at int) { p.ix.entries[l.entry].heapAt[p.which] = int32(at) }

type leafHeap = heap.Heap[leaf, leafPlaces]

// heaps are the heaps that an entry may stand in, by leafPlaces.which.
func (ix *Index) heaps(e *entry) [2]*leafHeap { return [2]*leafHeap{&ix.leaves, &e.space.leaves} }

// enter puts an entry into its heaps if it may be a victim.
func (ix *Index) enter(i int32) {
	e := &ix.entries[i]
	if e.children > 0 || e.pins > 0 || e.heapAt[0] != none {
		return
	}
	for which, h := range ix.heaps(e) {
		h.Push(leafPlaces{ix, which}, leaf{e.used, i})
	}
}

// leave takes an entry out of its heaps, if it is there.
func (ix *Index) leave(i int32) {
	e := &ix.entries[i]
	if e.heapAt[0] == none {
		return
	}
	for which, h := range ix.heaps(e) {
		h.Remove(leafPlaces{ix, which}, int(e.heapAt[which]))
		e.heapAt[which] = none
	}
}

// fix restores the order after an entry was used.
func (ix *Index) fix(i int32) {
	e := &ix.entries[i]
	if e.heapAt[0] == none {
		return
	}
	for which, h := range ix.heaps(e) {
		h.Set(leafPlaces{ix, which}, int(e.heapAt[which]), leaf{e.used, i})
	}
}
