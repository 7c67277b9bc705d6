// Package heap implements a binary heap that tells its owner the index of each element, so that any
// element can be moved or removed in O(log n). It allocates only to grow, and calls no element
// through an interface value. It owns the order of its elements and nothing else.
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

// Places records the indices of elements.
type Places[T any] interface {
	// Place records that x is at index at of Heap.Items.
	Place(x T, at int)
}

// Heap is a binary heap. The zero Heap is empty. While an element is in a heap, what its Before
// returns must not change; to change it, replace the element by [Heap.Set]. The methods record every
// index that they change in their argument p.
type Heap[T Element[T], P Places[T]] struct {
	Items []T // the first element is at 0; only the heap may write it
}

// Push adds x.
func (h *Heap[T, P]) Push(p P, x T) {
	h.Items = append(h.Items, x)
	h.up(p, len(h.Items)-1, x)
}

// Set replaces the element at index at of Items by x and moves x to where it belongs. It panics if the
// index is out of range.
func (h *Heap[T, P]) Set(p P, at int, x T) {
	if !h.down(p, at, x) {
		h.up(p, at, x)
	}
}

// Remove removes and returns the element at index at of Items. It does not call Place for that
// element. It panics if the index is out of range.
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

// up puts x at the free index at. If parents belong below x, it first moves them down, and puts x at
// the index of the last one moved.
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

// down moves children that come before x up, from the free index at, and puts x at the index of the
// last one moved. It returns false and does nothing if x belongs at index at or above.
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
