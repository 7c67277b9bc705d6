package heap

import (
	"math/rand/v2"
	"slices"
	"testing"
)

type item struct{ key, id int }

func (a item) Before(b item) bool { return a.key < b.key || a.key == b.key && a.id < b.id }

type places []int

func (p places) Place(x item, at int) { p[x.id] = at }

// TestHeapIsASort runs random operations and checks that the first element is the least one, and
// that every element is at its recorded place.
func TestHeapIsASort(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	where := make(places, 4000)
	var h Heap[item, places]
	var all []item
	for id := range where {
		switch n := rng.IntN(6); {
		case n < 3 || len(all) == 0:
			x := item{rng.IntN(50), id}
			all = append(all, x)
			h.Push(where, x)
		case n < 4:
			x := &all[rng.IntN(len(all))]
			x.key = rng.IntN(50)
			h.Set(where, where[x.id], *x)
		default:
			i := rng.IntN(len(all))
			if got := h.Remove(where, where[all[i].id]); got != all[i] {
				t.Fatalf("removed %v, want %v", got, all[i])
			}
			all = slices.Delete(all, i, i+1)
		}
		if len(h.Items) != len(all) {
			t.Fatalf("%d elements, want %d", len(h.Items), len(all))
		}
		for i, x := range h.Items {
			if where[x.id] != i || i > 0 && x.Before(h.Items[(i-1)/2]) {
				t.Fatalf("%v stands at %d, placed at %d", x, i, where[x.id])
			}
		}
	}
}
