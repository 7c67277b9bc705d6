package router

import (
	"math"
	"time"
)

// A worker owes the first token of each request, and then each next one. It is stalled if it
// owes a token for longer than the prediction + Config.Stall and longer than three times the
// prediction. A stalled worker is not chosen until it makes progress, unless all other eligible
// workers are stalled too.
//
// Example: Stall 5 s. A token predicted in 1 s may take 6 s; one predicted in 10 s (a long
// prompt) may take 30 s.
//
// Only requests of this router count, because replicas do not report each token. Any progress
// of a worker restarts the term of everything it owes: a worker that is slow but alive is
// not stalled.

// stallFactor is the multiple of a prediction that a worker may take.
const stallFactor = 3

// never is the result of lateAt for a worker that owes nothing.
const never = time.Duration(math.MaxInt64)

// debts are the signs of progress that a worker owes to this router's requests.
type debts struct {
	firsts    list // own reservations that wait for their first token, oldest first
	answers   list // own reservations that wait for their whole answer
	streaming int  // number of own reservations that wait for another token
	stalled   bool
}

func noDebts() debts { return debts{firsts: emptyList(byDebt), answers: emptyList(byDebt)} }

// clear reports whether the worker owes nothing.
func (d *debts) clear() bool {
	return d.firsts.head == none && d.answers.head == none && d.streaming == 0
}

// list returns the list to which reservation e belongs: answers if it is owed a whole answer,
// else firsts.
func (d *debts) list(e *reservation) *list {
	if e.due == asAnswer {
		return &d.answers
	}
	return &d.firsts
}

// addDebt notes what the worker owes for reservation at, which is made now for req: a first
// token, or a whole answer, within the time term. Term 0 means that nothing is owed.
func (d *debts) addDebt(slab []reservation, at int32, req *Request, now, term time.Duration) {
	if term == 0 {
		return
	}
	e := &slab[at]
	e.debt = debt{asToken, req.ExpectedOutput > 0, now, term}
	if req.Reply == AtOnce {
		e.due = asAnswer
	}
	d.list(e).push(slab, at)
}

// endDebt ends what the worker owes for reservation at.
func (d *debts) endDebt(slab []reservation, at int32) {
	e := &slab[at]
	switch e.due {
	case asToken, asAnswer:
		d.list(e).remove(slab, at)
	case asNext:
		d.streaming--
	}
	e.due = nothing
}

// noteToken notes that the request of reservation at has received tokens. If its first token was
// owed, the next token is owed from now on.
func (d *debts) noteToken(slab []reservation, at int32) {
	if e := &slab[at]; e.due == asToken {
		d.endDebt(slab, at)
		e.due = asNext
		d.streaming++
	}
}

// term returns the time within which something is due that is predicted to take p seconds.
func (c *Config) term(p float64) time.Duration {
	d := seconds(p)
	return max(d+c.Stall, stallFactor*d)
}

// updateNextLate lowers nextLate to the time at which worker w becomes late, if that is earlier.
// Call it after each change of the worker's debts or load.
func (l *ledger) updateNextLate(w *worker) { l.nextLate = min(l.nextLate, l.lateAt(w)) }

// markStalled marks the workers that are late now as stalled, and computes nextLate again. It
// costs one step per worker, about once per Config.Stall at most.
func (l *ledger) markStalled() {
	l.nextLate = never
	for _, slot := range l.fleet.all() {
		w := &l.fleet.workers[slot]
		if at := l.lateAt(w); at < l.fleet.now {
			w.stalled = true
			l.fleet.stalled++
		} else {
			l.nextLate = min(l.nextLate, at)
		}
	}
}

// lateAt returns the time at which worker w becomes late if it shows no progress before. It
// returns never if w owes nothing, is stalled already, or Config.Stall is 0. The term of a first
// token or a whole answer runs from worker.heard or from the reservation, whichever is later.
// The term of a next token runs from worker.heard; its prediction is the step time under the
// worker's present load.
func (l *ledger) lateAt(w *worker) time.Duration {
	at := never
	if w.stalled || l.cfg.Stall <= 0 {
		return at
	}
	for _, debts := range [...]*list{&w.firsts, &w.answers} {
		if debts.head != none {
			e := &l.slab[debts.head]
			at = min(at, max(e.reserved, w.heard)+e.term)
		}
	}
	if w.streaming > 0 {
		at = min(at, w.heard+l.cfg.term(w.nextToken()))
	}
	return at
}

// begun notes that the worker of reservation at has begun to compute the request. If the worker
// owes a whole answer of unknown length, it no longer owes it, because that may take arbitrarily
// long.
func (l *ledger) begun(at int32) {
	e := &l.slab[at]
	w := &l.fleet.workers[e.slot]
	l.fleet.noteProgress(w)
	if e.due == asAnswer && !e.sized {
		w.endDebt(l.slab, at)
	}
	l.updateNextLate(w)
}
