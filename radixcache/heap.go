package radixcache

import "github.com/coppice-llm/coppice/internal/heap"

// leafHeap is a heap of leaves. Each leaf's index in it is written down in a table by
// NodeID, so that a walk or a pin takes the leaf out in O(log n).
type leafHeap struct{ heap.Heap[heapKey, places] }

// places has each node's index in a heap, or nowhere.
type places []int32

// nowhere is the index of a node that is in no heap.
const nowhere = -1

// heapKey is a copy of a leaf's key; equal keys by age.
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

// put puts a leaf in, or where it belongs with a new key.
func (h *leafHeap) put(at places, k heapKey) {
	if i := at[k.id]; i != nowhere {
		h.Set(at, int(i), k)
	} else {
		h.Push(at, k)
	}
}

// take takes a node out if it is in.
func (h *leafHeap) take(at places, id NodeID) {
	if i := at[id]; i != nowhere {
		h.Remove(at, int(i))
		at[id] = nowhere
	}
}
