package kvindex

import (
	"cmp"
	"time"

	"github.com/coppice-llm/coppice/internal/heap"
	"github.com/coppice-llm/coppice/kv"
)

// mark is the end of a routed prompt.
type mark struct {
	holder kv.Rank
	hash   kv.BlockHash
}

type timer struct {
	mark
	expires time.Duration
	depth   uint32 // blocks of the prompt
}

// Before implements heap.Element: the earliest timer first, at the same time that of the
// longest prompt, so that last blocks go before first ones. The rest completes the order.
func (t timer) Before(u timer) bool {
	return cmp.Or(cmp.Compare(t.expires, u.expires), cmp.Compare(u.depth, t.depth),
		t.holder.Compare(u.holder), cmp.Compare(t.hash, u.hash)) < 0
}

// timerPlaces has each timer's index in the heap.
type timerPlaces map[mark]int

// Place implements heap.Places.
func (p timerPlaces) Place(t timer, at int) { p[t.mark] = at }

// timers is a heap with one timer for each mark.
type timers struct {
	heap heap.Heap[timer, timerPlaces]
	at   timerPlaces
}

// set adds a timer or moves that of the same mark.
func (ts *timers) set(t timer) {
	if at, ok := ts.at[t.mark]; ok {
		ts.heap.Set(ts.at, at, t)
	} else {
		ts.heap.Push(ts.at, t)
	}
}

// pop takes the first one off.
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

// drop takes off all timers of some holders. It looks at all timers.
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
