package radixcache

import "github.com/coppice-llm/coppice/internal/heap"

// leafHeap is a heap of leaves. A table by NodeID (places) has each leaf's index in the
// heap, so put and take need no search and cost O(log n).
type leafHeap struct{ heap.Heap[heapKey, places] }

// places has each node's index in a heap, or nowhere, by NodeID.
type places []int32

// nowhere is the index of a node that is in no heap.
const nowhere = -1

// heapKey is a leaf with copies of its key (rank or stamp) and of its stamp, so that
// comparisons read the heap's array and no nodes. Leaves with equal keys are ordered by
// stamp.
type heapKey struct {
	key, stamp uint64
	id         NodeID
}

// Before implements heap.Element.
func (k heapKey) Before(o heapKey) bool {
	return k.key < o.key || k.key == o.key && k.stamp < o.stamp
}

// Place implements heap.Places.
func (p places) Place(k heapKey, at int) { p[k.id] = int32(at) }

// put adds a leaf, or moves it to where its new key belongs.
func (h *leafHeap) put(at places, k heapKey) {
	if i := at[k.id]; i != nowhere {
		h.Set(at, int(i), k)
	} else {
		h.Push(at, k)
	}
}

// take removes a node if it is in the heap.
func (h *leafHeap) take(at places, id NodeID) {
	if i := at[id]; i != nowhere {
		h.Remove(at, int(i))
		at[id] = nowhere
	}
}
