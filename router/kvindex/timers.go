package kvindex

import (
	"cmp"
	"time"

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

// less orders timers: who expires first, at the same time the longest prompt, so
// that last blocks go before first ones; the rest only makes the order complete.
func (t timer) less(u timer) bool {
	return cmp.Or(cmp.Compare(t.expires, u.expires), cmp.Compare(u.depth, t.depth),
		t.holder.Compare(u.holder), cmp.Compare(t.hash, u.hash)) < 0
}

// timers is a heap with one timer for each mark.
type timers struct {
	heap []timer
	at   map[mark]int // places in heap
}

// set adds a timer or moves that of the same mark.
func (ts *timers) set(t timer) {
	at, ok := ts.at[t.mark]
	if !ok {
		at = len(ts.heap)
		ts.heap = append(ts.heap, t)
	}
	ts.put(at, t)
	ts.up(at)
	ts.down(ts.at[t.mark])
}

// pop takes the first one off.
func (ts *timers) pop() timer {
	first := ts.heap[0]
	last := len(ts.heap) - 1
	moved := ts.heap[last]
	ts.heap = ts.heap[:last]
	delete(ts.at, first.mark)
	if last > 0 {
		ts.put(0, moved)
		ts.down(0)
	}
	return first
}

// drop takes off all timers of some holders. Cost: all timers.
func (ts *timers) drop(of func(kv.Rank) bool) {
	kept := ts.heap[:0]
	for _, t := range ts.heap {
		if of(t.holder) {
			delete(ts.at, t.mark)
			continue
		}
		kept = append(kept, t)
	}
	ts.heap = kept
	for i, t := range kept {
		ts.at[t.mark] = i
	}
	for i := len(kept)/2 - 1; i >= 0; i-- {
		ts.down(i)
	}
}

func (ts *timers) put(at int, t timer) {
	ts.heap[at] = t
	ts.at[t.mark] = at
}

func (ts *timers) up(at int) {
	for at > 0 && ts.heap[at].less(ts.heap[(at-1)/2]) {
		ts.swap(at, (at-1)/2)
		at = (at - 1) / 2
	}
}

func (ts *timers) down(at int) {
	for {
		least := at
		for kid := 2*at + 1; kid <= 2*at+2 && kid < len(ts.heap); kid++ {
			if ts.heap[kid].less(ts.heap[least]) {
				least = kid
			}
		}
		if least == at {
			return
		}
		ts.swap(at, least)
		at = least
	}
}

func (ts *timers) swap(i, j int) {
	t, u := ts.heap[i], ts.heap[j]
	ts.put(i, u)
	ts.put(j, t)
}
