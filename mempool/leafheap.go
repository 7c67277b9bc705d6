package mempool

import "github.com/coppice-llm/coppice/internal/heap"

// leaf is an entry of an [Index] that may be a Victim. Leaves are ordered by their last use.
type leaf struct {
	used  uint64
	entry int32
}

// Before implements heap.Element.
func (l leaf) Before(m leaf) bool { return l.used < m.used }

// leafPlaces records the index of a leaf in a heap, in entry.heapAt[which]. which is 0 for the
// heap of all leaves and 1 for the heap of the leaf's namespace.
type leafPlaces struct {
	ix    *Index
	which int
}

// Place implements heap.Places.
func (p leafPlaces) Place(l leaf, at int) { p.ix.entries[l.entry].heapAt[p.which] = int32(at) }

type leafHeap = heap.Heap[leaf, leafPlaces]

// heaps returns the two heaps for an entry, by leafPlaces.which.
func (ix *Index) heaps(e *entry) [2]*leafHeap { return [2]*leafHeap{&ix.leaves, &e.space.leaves} }

// enter puts entry i into its heaps if it has no children and no pins, and is in no heap yet.
func (ix *Index) enter(i int32) {
	e := &ix.entries[i]
	if e.children > 0 || e.pins > 0 || e.heapAt[0] != none {
		return
	}
	for which, h := range ix.heaps(e) {
		h.Push(leafPlaces{ix, which}, leaf{e.used, i})
	}
}

// leave takes entry i out of its heaps if it is in them.
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

// fix moves entry i to its new place in its heaps, if it is in them, after its used changed.
func (ix *Index) fix(i int32) {
	e := &ix.entries[i]
	if e.heapAt[0] == none {
		return
	}
	for which, h := range ix.heaps(e) {
		h.Set(leafPlaces{ix, which}, int(e.heapAt[which]), leaf{e.used, i})
	}
}
