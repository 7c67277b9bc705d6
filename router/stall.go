package router

import (
	"math"
	"time"
)

// A worker owes the first token of each request, and then the next one. One that owes a
// token for longer than Config.Stall beyond the prediction, and for longer than three
// times the prediction, is stalled: it is not chosen until it makes progress, unless
// all others that a request may go to are stalled too.
//
// Only what this router's own requests are owed counts, as other routers do not tell each
// token. Any progress of a worker gives all it owes a new term.

// stallFactor is by how many times a prediction must be exceeded.
const stallFactor = 3

// never is when a worker that owes nothing is late.
const never = time.Duration(math.MaxInt64)

// debts are what a worker owes.
type debts struct {
	firsts    list // own reservations that are owed their first token, oldest first
	answers   list // those that are owed all of their answer at once
	streaming int  // those that are owed another token
	stalled   bool
}

func noDebts() debts { return debts{firsts: emptyList(byDebt), answers: emptyList(byDebt)} }

// clear reports whether nothing is owed.
func (d *debts) clear() bool {
	return d.firsts.head == none && d.answers.head == none && d.streaming == 0
}

// list is where a reservation is that is owed a first token, or all.
func (d *debts) list(e *reservation) *list {
	if e.owed == asAnswer {
		return &d.answers
	}
	return &d.firsts
}

// owe notes what is owed for a reservation that was made now, within a term; 0: nothing.
func (d *debts) owe(slab []reservation, at int32, req *Request, now, term time.Duration) {
	if term == 0 {
		return
	}
	e := &slab[at]
	e.debt = debt{asToken, req.ExpectedOutput > 0, now, term}
	if req.Reply == AtOnce {
		e.owed = asAnswer
	}
	d.list(e).push(slab, at)
}

// settle ends what is owed for a reservation.
func (d *debts) settle(slab []reservation, at int32) {
	e := &slab[at]
	switch e.owed {
	case asToken, asAnswer:
		d.list(e).remove(slab, at)
	case asNext:
		d.streaming--
	}
	e.owed = nothing
}

// flow notes that a request has got tokens.
func (d *debts) flow(slab []reservation, at int32) {
	if e := &slab[at]; e.owed == asToken {
		d.settle(slab, at)
		e.owed = asNext
		d.streaming++
	}
}

// term is how long something may take that is predicted to take p seconds.
func (c *Config) term(p float64) time.Duration {
	d := seconds(p)
	return max(d+c.Stall, stallFactor*d)
}

// watch looks at a worker again no later than when it is late: to be called whenever what
// it owes or its load has changed.
func (l *ledger) watch(w *worker) { l.nextLate = min(l.nextLate, l.lateAt(w)) }

// look finds the workers that are late by now. It costs a step for each worker, at most
// about once in a Config.Stall for each.
func (l *ledger) look() {
	l.nextLate = never
	for _, slot := range l.fleet.all() {
		w := &l.fleet.workers[slot]
		if at := l.lateAt(w); at < l.fleet.now {
			w.stalled = true
			l.fleet.stalled++
			l.stalls++
		} else {
			l.nextLate = min(l.nextLate, at)
		}
	}
}

// lateAt is when a worker will be late with something if nothing is heard of it; never of
// one that is stalled.
func (l *ledger) lateAt(w *worker) time.Duration {
	at := never
	if w.stalled || l.cfg.Stall <= 0 {
		return at
	}
	for _, owed := range [...]*list{&w.firsts, &w.answers} {
		if owed.head != none {
			e := &l.slab[owed.head]
			at = min(at, max(e.reserved, w.heard)+e.term)
		}
	}
	if w.streaming > 0 {
		at = min(at, w.heard+l.cfg.term(w.nextToken()))
	}
	return at
}

// begun notes that a worker has begun to compute a request. A reply that comes at once,
// nobody knows when, is owed no longer.
func (l *ledger) begun(at int32) {
	e := &l.slab[at]
	w := &l.fleet.workers[e.slot]
	l.fleet.hear(w)
	if e.owed == asAnswer && !e.told {
		w.settle(l.slab, at)
	}
	l.watch(w)
}
