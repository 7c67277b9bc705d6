package kvindex

import (
	"cmp"
	"time"

	"github.com/coppice-llm/coppice/internal/heap"
	"github.com/coppice-llm/coppice/kv"
)

// mark identifies a routed prompt by its holder and the hash of its last block.
type mark struct {
	holder kv.Rank
	hash   kv.BlockHash
}

// timer is the time at which a routed prompt expires.
type timer struct {
	mark
	expires time.Duration
	depth   uint32 // number of blocks of the prompt
}

// Before reports whether t expires before u. At the same time the longer prompt comes first, so
// that last blocks are removed before first ones. Holder and hash decide between equal lengths,
// so that the order is total. It implements heap.Element.
func (t timer) Before(u timer) bool {
	return cmp.Or(cmp.Compare(t.expires, u.expires), cmp.Compare(u.depth, t.depth),
		t.holder.Compare(u.holder), cmp.Compare(t.hash, u.hash)) < 0
}

// timerPlaces maps each mark to its timer's index in the heap.
type timerPlaces map[mark]int

// Place notes that timer t is at this index of the heap. It implements heap.Places.
func (p timerPlaces) Place(t timer, at int) { p[t.mark] = at }

// timers is a heap with one timer per mark, the earliest first. Prompts of one holder with the
// same last block share a timer, so there are at most as many timers as blocks.
type timers struct {
	heap heap.Heap[timer, timerPlaces]
	at   timerPlaces
}

// set adds timer t, or replaces the timer with the same mark.
func (ts *timers) set(t timer) {
	if at, ok := ts.at[t.mark]; ok {
		ts.heap.Set(ts.at, at, t)
	} else {
		ts.heap.Push(ts.at, t)
	}
}

// pop removes and returns the earliest timer. There must be one.
func (ts *timers) pop() timer { return ts.remove(0) }

func (ts *timers) remove(at int) timer {
	t := ts.heap.Remove(ts.at, at)
	delete(ts.at, t.mark)
	return t
}

// first returns the earliest timer, if there is one.
func (ts *timers) first() (timer, bool) {
	if len(ts.heap.Items) == 0 {
		return timer{}, false
	}
	return ts.heap.Items[0], true
}

// drop removes the timers of all holders for which of returns true. It visits all timers.
func (ts *timers) drop(of func(kv.Rank) bool) {
	var gone []mark
	for _, t := range ts.heap.Items {
		if of(t.holder) {
			gone = append(gone, t.mark)
		}
	}
	for _, m := range gone {
		ts.remove(ts.at[m])
	}
}
