package router

import (
	"errors"
	"fmt"

	"github.com/coppice-llm/coppice/internal/heap"
	"github.com/coppice-llm/coppice/kv"
)

// ErrTicket is the refusal of Take for a ticket that has ended.
var ErrTicket = errors.New("router: this ticket has ended")

// QueueFullError refuses a request that would wait.
type QueueFullError struct{ Queued, Limit int }

func (e *QueueFullError) Error() string {
	return fmt.Sprintf("router: queue full: %d requests wait, at most %d may", e.Queued, e.Limit)
}

// Ticket is a place in the queue. It ends by Take or Cancel.
type Ticket struct {
	at int32
	id uint64
}

// queue holds the waiting requests.
type queue struct {
	cfg    *Config
	slab   waitingSlab
	free   []int32
	lanes  []lane
	n      int // requests that wait
	lastID uint64
}

type waitingSlab []waiting

type waiting struct {
	turn
	req    Request
	lane   int32 // of queue.lanes
	heapAt int32 // where it is in the lane's heap
}

// turn is when a waiting request goes: by priority, then rank, then as they came.
type turn struct {
	priority int
	rank     float64
	id       uint64 // 0 where the entry is free
	at       int32  // of queue.slab
}

// Before implements heap.Element.
func (t turn) Before(u turn) bool {
	switch {
	case t.priority != u.priority:
		return t.priority > u.priority
	case t.rank != u.rank:
		return t.rank > u.rank
	}
	return t.id < u.id
}

// Place implements heap.Places.
func (s waitingSlab) Place(t turn, at int) { s[t.at].heapAt = int32(at) }

// lane holds requests that wait for the same workers: if the first one can't go, none of
// them can, so finding the next request costs a step for each lane, however many wait.
// Requests that avoid workers are in one lane together and looked at one by one.
type lane struct {
	of laneOf
	heap.Heap[turn, waitingSlab]
}

type laneOf struct {
	group
	pin    kv.Rank
	pinned bool
	picky  bool // they avoid workers
}

func laneFor(req *Request) laneOf {
	if len(req.Avoid) > 0 {
		return laneOf{picky: true}
	}
	of := laneOf{group: group{req.Model, req.Pool}}
	if req.Pinned != nil {
		of.pin, of.pinned = *req.Pinned, true
	}
	return of
}

// turnOf is the turn of a request that arrives now.
func (q *queue) turnOf(req *Request, now float64) turn {
	t := turn{priority: req.Priority, id: q.lastID + 1}
	switch q.cfg.Order {
	case LCFS:
		t.rank = now
	case WSPT:
		best := 0
		for i := range req.Overlaps {
			best = max(best, req.Overlaps[i].Blocks())
		}
		t.rank = 1 / float64(max(1, req.PromptTokens-best*q.cfg.BlockTokens))
	default:
		t.rank = -now
	}
	return t
}

// first is the request that goes next: of those whose workers are not all busy, the one
// before all others. Requests that wait for busy workers hold up no others. It costs a
// step for each lane, and for each request that avoids workers.
func (q *queue) first(f *fleet) int32 {
	best := int32(none)
	if q.n == 0 {
		return best
	}
	waits := f.allBusy
	if !f.anyFree() {
		waits = f.anyEligible // which is quicker
	}
	for i := range q.lanes {
		turns := q.lanes[i].Items
		if !q.lanes[i].of.picky {
			turns = turns[:min(1, len(turns))]
		}
		for _, t := range turns {
			if w := &q.slab[t.at]; (best == none || t.Before(q.slab[best].turn)) && !waits(&w.req) {
				best = t.at
			}
		}
	}
	return best
}

// enqueue puts a request into its lane. Lanes that are empty are used again.
func (q *queue) enqueue(req *Request, t turn) Ticket {
	t.at = int32(len(q.slab))
	if n := len(q.free); n > 0 {
		t.at, q.free = q.free[n-1], q.free[:n-1]
	} else {
		q.slab = append(q.slab, waiting{})
	}
	of, to := laneFor(req), none
	for i := range q.lanes {
		if len(q.lanes[i].Items) == 0 {
			to = i
		} else if q.lanes[i].of == of {
			to = i
			break
		}
	}
	if to == none {
		to = len(q.lanes)
		q.lanes = append(q.lanes, lane{})
	}
	q.lastID = t.id
	q.slab[t.at] = waiting{turn: t, req: *req, lane: int32(to)}
	q.lanes[to].of = of
	q.lanes[to].Push(q.slab, t)
	q.n++
	return Ticket{t.at, t.id}
}

// dequeue takes an entry out of its lane and frees it.
func (q *queue) dequeue(at int32) {
	w := &q.slab[at]
	q.lanes[w.lane].Remove(q.slab, int(w.heapAt))
	*w = waiting{}
	q.free = append(q.free, at)
	q.n--
}

func (q *queue) waits(t Ticket) *waiting {
	if t.id == 0 || t.at < 0 || int(t.at) >= len(q.slab) || q.slab[t.at].id != t.id {
		return nil
	}
	return &q.slab[t.at]
}
