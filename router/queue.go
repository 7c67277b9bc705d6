package router

import (
	"errors"
	"fmt"
	"maps"

	"github.com/coppice-llm/coppice/internal/enum"
	"github.com/coppice-llm/coppice/internal/heap"
	"github.com/coppice-llm/coppice/kv"
)

// ErrTicket is returned by Take for a ticket that has ended.
var ErrTicket = errors.New("router: this ticket has ended")

// QueueFullError is the error of Wait when Queued requests wait already and Limit is the most
// that may wait.
type QueueFullError struct{ Queued, Limit int }

func (e *QueueFullError) Error() string {
	return fmt.Sprintf("router: queue full: %d requests wait, at most %d may", e.Queued, e.Limit)
}

// Ticket is a place in the queue. It ends by Take or Cancel.
type Ticket struct {
	at int32
	id uint64
}

// queue holds the waiting requests, sorted into lanes (see lane).
type queue struct {
	cfg    *Config
	slab   waitingSlab
	free   []int32
	lanes  []lane
	n      int // requests that wait
	lastID uint64
	shares shares
}

// shares keeps how many tokens each tenant has been given under Fair: start-time fair queueing (Goyal, Vin and Cheng 1996). A waiting request
// starts where its tenant's last one finishes, but not before the start of the request that was placed last. The earliest
// start goes first.
type shares struct {
	now      float64            // the start of the request that was placed last
	finishes map[uint64]float64 // by tenant
}

// start returns the start of a tenant's next request.
func (s *shares) start(tenant uint64) float64 { return max(s.now, s.finishes[tenant]) }

// enter notes that a request of a tenant waits, with its start and its tokens. At 2·most tenants those are forgotten that are owed nothing,
// or if that is not enough, all: then all start again.
func (s *shares) enter(tenant uint64, start, tokens float64, most int) {
	if s.finishes == nil {
		s.finishes = map[uint64]float64{}
	}
	if len(s.finishes) >= 2*most {
		maps.DeleteFunc(s.finishes, func(_ uint64, finish float64) bool { return finish <= s.now })
		if len(s.finishes) > most {
			clear(s.finishes)
		}
	}
	s.finishes[tenant] = start + tokens
}

type waitingSlab []waiting

// waiting is a request in the queue. It knows its place in its lane's heap, so Cancel finds it
// in O(1).
type waiting struct {
	turn
	req    Request
	lane   int32 // of queue.lanes
	heapAt int32 // where it is in the lane's heap
}

// turn is a waiting request's place in the order: higher priority first, then higher rank, then lower id. Ids
// ascend in the order of arrival.
type turn struct {
	priority int32
	rank     float64
	id       uint64 // 0: the entry is free
	at       int32  // of queue.slab
}

// Before reports whether t comes before u. It implements heap.Element.
func (t turn) Before(u turn) bool {
	if t.priority != u.priority {
		return t.priority > u.priority
	}
	if t.rank != u.rank {
		return t.rank > u.rank
	}
	return t.id < u.id
}

// Place notes that t is now at index at of its lane's heap. It implements heap.Places.
func (s waitingSlab) Place(t turn, at int) { s[t.at].heapAt = int32(at) }

// lane holds requests that wait for the same workers. If its first request finds no free worker,
// none of the others does, so finding the next request costs one step per lane, however many
// requests wait. Requests that avoid workers share one lane and are checked one by one.
type lane struct {
	of laneOf
	heap.Heap[turn, waitingSlab]
}

// laneOf is the kind of a lane: the restrictions that its requests share.
type laneOf struct {
	group
	pin      kv.Rank
	pinned   bool
	avoiding bool // its requests have Avoid or Among
}

// laneFor returns the kind of lane in which a request waits.
func laneFor(req *Request) laneOf {
	if len(req.Avoid) > 0 || req.Among != nil {
		return laneOf{avoiding: true}
	}
	of := laneOf{group: group{req.Model, req.Pool}}
	if req.Pinned != nil {
		of.pin, of.pinned = *req.Pinned, true
	}
	return of
}

// turnOf returns the turn of a request that arrives at now, in seconds; the field at is not set.
// The rank is now under LCFS, −now under FCFS, under WSPT 1/(prompt tokens to compute), and under Fair the negative start, see
// shares.
func (q *queue) turnOf(req *Request, now float64) turn {
	t := turn{id: q.lastID + 1, priority: req.Priority}
	switch q.cfg.Order {
	case LCFS:
		t.rank = now
	case WSPT:
		t.rank = 1 / q.uncached(req)
	case Fair:
		t.rank = -q.shares.start(req.Tenant)
	default:
		t.rank = -now
	}
	return t
}

// uncached returns the number of prompt tokens to compute at the worker that has most of the prompt cached, at least 1.
func (q *queue) uncached(req *Request) float64 {
	best := 0
	for i := range req.Overlaps {
		best = max(best, req.Overlaps[i].Blocks())
	}
	return float64(max(1, req.PromptTokens-best*q.cfg.BlockTokens))
}

// next returns the entry of the waiting request to place next, or none: the one with the
// earliest turn among requests that have a free eligible worker. A request whose workers are all
// busy holds up no others. It costs one step per lane, and one per request that avoids workers.
func (q *queue) next(f *fleet) int32 {
	best := int32(none)
	if q.n == 0 {
		return best
	}
	waits := f.allBusy
	if !f.anyFree() {
		waits = f.anyEligible // no worker is free, so eligible means busy: a cheaper test
	}
	for i := range q.lanes {
		turns := q.lanes[i].Items
		if !q.lanes[i].of.avoiding {
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

// enqueue puts a request into the lane of its kind and returns its ticket. t is its turn from
// turnOf. An empty lane is reused for another kind, so there are never more lanes than kinds
// that waited at the same time.
func (q *queue) enqueue(req *Request, t turn) Ticket {
	t.at = occupy(&q.slab, &q.free)
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
	if q.cfg.Order == Fair {
		output := q.cfg.ExpectedOutput
		if req.ExpectedOutput > 0 {
			output = req.ExpectedOutput
		}
		q.shares.enter(req.Tenant, -t.rank, q.uncached(req)+float64(output), q.cfg.MaxQueued)
	}
	q.slab[t.at] = waiting{turn: t, req: *req, lane: int32(to)}
	q.lanes[to].of = of
	q.lanes[to].Push(q.slab, t)
	q.n++
	return Ticket{t.at, t.id}
}

// dequeue removes entry at from its lane and frees the entry.
func (q *queue) dequeue(at int32) {
	w := &q.slab[at]
	q.lanes[w.lane].Remove(q.slab, int(w.heapAt))
	*w = waiting{}
	q.free = append(q.free, at)
	q.n--
}

// waits returns the entry of a ticket, or nil if the ticket has ended.
func (q *queue) waits(t Ticket) *waiting {
	if t.id == 0 || t.at < 0 || int(t.at) >= len(q.slab) || q.slab[t.at].id != t.id {
		return nil
	}
	return &q.slab[t.at]
}

// Order is the order of waiting requests of equal priority. Names and formulas are Dynamo's, except Fair.
// Requests that the formula ranks equal go in the order of arrival.
type Order uint8

// The orders.
const (
	FCFS Order = iota // first come, first served
	LCFS              // last come, first served
	WSPT              // fewest tokens to compute at the best worker (weighted shortest processing time)
	Fair              // tenants take turns, by tokens of prompts to compute and of expected outputs
)

var orderNames = enum.New[Order]("router", "order", "fcfs", "lcfs", "wspt", "fair")

func (o Order) String() string { return orderNames.Name(o) }

// UnmarshalText reads an order's name.
func (o *Order) UnmarshalText(text []byte) error { return orderNames.Read(o, text) }
