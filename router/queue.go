package router

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// Order says who of those who wait with equal priority goes first. Names and
// formulas are Dynamo's; equal ones go as they came.
type Order uint8

// The orders. Jump and arrival in seconds.
const (
	FCFS Order = iota // the highest Jump − arrival
	LCFS              // the highest Jump + arrival
	WSPT              // the highest (1 + Jump)/(tokens that the best worker must compute)
)

var orderNames = []string{"fcfs", "lcfs", "wspt"}

func (o Order) String() string {
	if int(o) < len(orderNames) {
		return orderNames[o]
	}
	return fmt.Sprintf("order(%d)", uint8(o))
}

// UnmarshalText reads an order's name.
func (o *Order) UnmarshalText(text []byte) error {
	i := slices.Index(orderNames, string(text))
	if i < 0 {
		return fmt.Errorf("router: unknown order %q, want one of %v", text, orderNames)
	}
	*o = Order(i)
	return nil
}

// The refusals of Wait and Take, beside those of Select.
var (
	ErrDeadline = errors.New("router: the deadline has passed")
	ErrTicket   = errors.New("router: this ticket has ended")
)

// QueueFullError refuses a request that would wait.
type QueueFullError struct{ Queued, Limit int }

func (e *QueueFullError) Error() string {
	return fmt.Sprintf("router: queue full: %d requests wait, at most %d may", e.Queued, e.Limit)
}

// Ticket is a place in the queue. It ends by Take, Cancel or Overdue.
type Ticket struct {
	at int32
	id uint64
}

// queue are the waiting requests.
type queue struct {
	slab     []waiting
	free     []int32
	lanes    []lane
	n        int // who waits
	lastID   uint64
	earliest time.Duration // no deadline is before it
}

type waiting struct {
	id     uint64 // 0 where the entry is free
	req    Request
	rank   float64
	lane   int32 // of queue.lanes
	heapAt int32 // where it is in the lane's heap
}

// rank of a request that arrives now; the highest goes first.
func (r *Router) rank(req *Request) float64 {
	jump := req.Jump.Seconds()
	switch r.cfg.Order {
	case LCFS:
		return jump + r.now.Seconds()
	case WSPT:
		best := 0
		for i := range req.Overlaps {
			best = max(best, req.Overlaps[i].Blocks())
		}
		return (1 + jump) / float64(max(1, req.PromptTokens-best*r.cfg.BlockTokens))
	default:
		return jump - r.now.Seconds()
	}
}

// ahead tells whether who waits goes before a newcomer.
func (w *waiting) ahead(priority int, rank float64) bool {
	if w.req.Priority != priority {
		return w.req.Priority > priority
	}
	return w.rank >= rank
}

// before tells whether somebody waits who could go now and goes before req. It costs a
// step for each lane, and for each who waits that avoids workers.
func (q *queue) before(req *Request, r *Router) bool {
	at := q.first(r)
	return at != none && q.slab[at].ahead(req.Priority, r.rank(req))
}

// Wait queues a request for which Select answered ErrBusy. Its slices belong to
// the router until the ticket ends. Errors: [ErrRequest], [ErrNoWorkers] if it may
// go to no worker that there is, [ErrDeadline], *[QueueFullError].
func (r *Router) Wait(now time.Duration, req *Request) (Ticket, error) {
	r.advance(now)
	refuse := func(err error) (Ticket, error) {
		r.metrics.Refused++
		return Ticket{}, err
	}
	q := &r.queue
	if err := r.check(req); err != nil {
		return refuse(err)
	}
	if req.Deadline != 0 && req.Deadline <= r.now {
		return refuse(ErrDeadline)
	}
	if any, _ := r.prospects(req); !any {
		return refuse(ErrNoWorkers)
	}
	if q.n >= r.cfg.MaxQueued {
		return refuse(&QueueFullError{q.n, r.cfg.MaxQueued})
	}
	at := int32(len(q.slab))
	if n := len(q.free); n > 0 {
		at = q.free[n-1]
		q.free = q.free[:n-1]
	} else {
		q.slab = append(q.slab, waiting{})
	}
	q.lastID++
	q.slab[at] = waiting{id: q.lastID, req: *req, rank: r.rank(req)}
	q.enqueue(at)
	if req.Deadline != 0 && (q.earliest == 0 || req.Deadline < q.earliest) {
		q.earliest = req.Deadline
	}
	r.metrics.Queued++
	return Ticket{at, q.lastID}, nil
}

// Next is who goes next, if anybody who waits can go now: to be called after each
// Progress, Release, Report and Join, and Take for each, until it is false. What
// the request overlaps with has likely changed since.
func (r *Router) Next(now time.Duration) (Ticket, *Request, bool) {
	r.advance(now)
	at := r.queue.first(r)
	if at == none {
		return Ticket{}, nil, false
	}
	w := &r.queue.slab[at]
	return Ticket{at, w.id}, &w.req, true
}

// Take is Select for a request that waits, with overlaps that were looked up anew.
// The ticket ends, but with [ErrBusy] and [ErrFull].
func (r *Router) Take(now time.Duration, t Ticket, overlaps []Overlap) (Decision, error) {
	r.advance(now)
	w := r.queue.waits(t)
	if w == nil {
		return Decision{}, ErrTicket
	}
	if r.allBusy(&w.req) {
		return Decision{}, ErrBusy
	}
	if r.active >= r.cfg.MaxActive {
		return Decision{}, ErrFull
	}
	req := w.req
	req.Overlaps = overlaps
	r.queue.dequeue(t.at)
	if err := r.check(&req); err != nil {
		r.metrics.Refused++
		return Decision{}, err
	}
	return r.choose(&req)
}

// Cancel takes a request out of the queue. It is true exactly once.
func (r *Router) Cancel(t Ticket) bool {
	if r.queue.waits(t) == nil {
		return false
	}
	r.queue.dequeue(t.at)
	r.metrics.Cancelled++
	return true
}

// Overdue takes those out of the queue whose deadline has come and appends their
// tickets to dst, in the order of the queue.
func (r *Router) Overdue(now time.Duration, dst []Ticket) []Ticket {
	r.advance(now)
	q := &r.queue
	if q.earliest == 0 || r.now < q.earliest {
		return dst
	}
	from := len(dst)
	q.earliest = 0
	for at := range q.slab {
		w := &q.slab[at]
		switch {
		case w.id == 0 || w.req.Deadline == 0:
		case w.req.Deadline <= r.now:
			dst = append(dst, Ticket{int32(at), w.id})
		case q.earliest == 0 || w.req.Deadline < q.earliest:
			q.earliest = w.req.Deadline
		}
	}
	slices.SortFunc(dst[from:], func(a, b Ticket) int {
		if q.less(a.at, b.at) {
			return -1
		}
		return 1
	})
	for _, t := range dst[from:] {
		q.dequeue(t.at)
		r.metrics.Overdue++
	}
	return dst
}

// Queued is how many requests wait.
func (r *Router) Queued() int { return r.queue.n }

func (q *queue) waits(t Ticket) *waiting {
	if t.id == 0 || t.at < 0 || int(t.at) >= len(q.slab) || q.slab[t.at].id != t.id {
		return nil
	}
	return &q.slab[t.at]
}
