// Package heap is a binary heap whose owner knows where each element stands, so any
// element can be moved or taken out in O(log n). It allocates only to grow, and calls no
// element through an interface value. It owns the order of its elements and nothing else.
//
//	type event struct{ at time.Duration; id int }
//	func (a event) Before(b event) bool { return a.at < b.at }
//
//	type places []int
//	func (p places) Place(e event, at int) { p[e.id] = at }
//
//	var h heap.Heap[event, places]
//	h.Push(where, event{at, id})
//	next := h.Items[0]
//	h.Remove(where, where[id])
package heap

// Element orders the elements of a [Heap].
type Element[T any] interface {
	// Before reports whether the element comes before x.
	Before(x T) bool
}

// Places keeps where elements stand.
type Places[T any] interface {
	// Place notes that x stands at an index of Heap.Items.
	Place(x T, at int)
}

// Heap is a binary heap. The zero Heap is empty. An element's order must not change
// while it stands in a heap, but by [Heap.Set].
type Heap[T Element[T], P Places[T]] struct {
	Items []T // the first element at 0; written by the heap alone
}

// Push adds an element.
func (h *Heap[T, P]) Push(p P, x T) {
	h.Items = append(h.Items, x)
	h.up(p, len(h.Items)-1, x)
}

// Set replaces the element at an index.
func (h *Heap[T, P]) Set(p P, at int, x T) {
	if !h.down(p, at, x) {
		h.up(p, at, x)
	}
}

// Remove takes out the element at an index. The caller notes that it is gone.
func (h *Heap[T, P]) Remove(p P, at int) T {
	gone, last := h.Items[at], len(h.Items)-1
	moved := h.Items[last]
	h.Items[last] = *new(T)
	h.Items = h.Items[:last]
	if at < last {
		h.Set(p, at, moved)
	}
	return gone
}

// up puts x at a free index, or above it.
func (h *Heap[T, P]) up(p P, at int, x T) {
	for at > 0 {
		parent := (at - 1) / 2
		if !x.Before(h.Items[parent]) {
			break
		}
		h.put(p, at, h.Items[parent])
		at = parent
	}
	h.put(p, at, x)
}

// down puts x below a free index, or returns false if it belongs there or above.
func (h *Heap[T, P]) down(p P, at int, x T) (moved bool) {
	for {
		child := 2*at + 1
		if child >= len(h.Items) {
			break
		}
		if right := child + 1; right < len(h.Items) && h.Items[right].Before(h.Items[child]) {
			child = right
		}
		if !h.Items[child].Before(x) {
			break
		}
		h.put(p, at, h.Items[child])
		at, moved = child, true
	}
	if moved {
		h.put(p, at, x)
	}
	return moved
}

func (h *Heap[T, P]) put(p P, at int, x T) {
	h.Items[at] = x
	p.Place(x, at)
}
