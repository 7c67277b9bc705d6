package router

import (
	"fmt"
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

// Reply says when something of an answer is seen.
type Reply uint8

// The kinds of reply.
const (
	Streamed Reply = iota // each token as it comes
	AtOnce                // all after the last token
	Unknown               // nobody knows: its worker owes nothing that could be late
)

// clock is the router's time, and who is late by it.
type clock struct {
	now      time.Duration // the latest that any call told
	nextLate time.Duration // until when nobody else is late, if nothing is heard
	stalled  int           // workers
}

// debt is what a worker owes for one reservation.
type debt struct {
	owed     owed
	told     bool          // how long the reply will be
	reserved time.Duration // when it was
	term     time.Duration // how long the first token may take, or all
}

// owed says what comes next of a reply.
type owed uint8

const (
	nothing  owed = iota
	asToken       // its first token
	asNext        // another one
	asAnswer      // all of it
)

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

// due is how long a worker may take to what it will owe first for a request, 0 for nothing.
func (s *scorer) due(r *Router, req *Request, slot int32) time.Duration {
	if r.cfg.Stall <= 0 || req.Reply == Unknown {
		return 0
	}
	cost, terms := r.scratch.costs[slot], [maxTerms]float64{}
	one := [1]int32{slot}
	r.latency(s, one[:], &terms)
	r.scratch.costs[slot] = cost
	predicted := terms[0] + r.gauges[slot].step
	if req.Reply == AtOnce {
		predicted += terms[1]
	}
	return r.cfg.term(predicted)
}

// hear notes that a worker has made progress. Its recount is to follow.
func (c *clock) hear(w *worker) {
	w.heard = c.now
	c.unstall(w)
}

func (c *clock) unstall(w *worker) {
	if w.stalled {
		w.stalled = false
		c.stalled--
	}
}

// Begun says that a worker has begun to compute a request, which is progress. A reply that
// comes at once, nobody knows when, is owed no longer. False: the reservation has ended.
func (r *Router) Begun(now time.Duration, res Reservation) bool {
	r.advance(now)
	e := r.own(res)
	if e == nil {
		return false
	}
	w := &r.workers[e.slot]
	r.hear(w)
	if e.owed == asAnswer && !e.told {
		w.settle(r.slab, res.at)
	}
	r.recount(e.slot)
	r.verify()
	return true
}

// Abandon ends a reservation whose answer did not come to its end: like Release, but it
// does not say that the worker has made progress.
func (r *Router) Abandon(now time.Duration, res Reservation) bool {
	r.advance(now)
	if r.own(res) == nil {
		return false
	}
	r.end(res.at, released)
	return true
}

// look finds out who is late by now. It costs a step for each worker, at most about once in
// a Config.Stall for each.
func (r *Router) look() {
	r.nextLate = never
	for _, slot := range r.models[anyModel].order {
		w := &r.workers[slot]
		if at := w.lateAt(r, slot); at < r.now {
			w.stalled = true
			r.stalled++
			r.metrics.Stalled++
			r.recount(slot)
		} else {
			r.nextLate = min(r.nextLate, at)
		}
	}
}

// lateAt is when a worker will be late with something if nothing is heard of it; never of
// one that is stalled.
func (w *worker) lateAt(r *Router, slot int32) time.Duration {
	at := never
	if w.stalled || r.cfg.Stall <= 0 {
		return at
	}
	for _, l := range [...]*list{&w.firsts, &w.answers} {
		if l.head != none {
			e := &r.slab[l.head]
			at = min(at, max(e.reserved, w.heard)+e.term)
		}
	}
	if w.streaming > 0 {
		at = min(at, w.heard+r.cfg.term(w.nextToken(&r.gauges[slot], &r.kinds[w.kind])))
	}
	return at
}

// nextToken is how long a worker that decodes takes to the next token, in seconds: a step
// with as many prompt tokens as fit into it.
func (w *worker) nextToken(g *gauge, k *kind) float64 {
	if w.prefilling == 0 {
		return g.current
	}
	n := float64(w.prefillTokens)
	if batch := float64(w.spec.BatchTokens); batch > 0 {
		n = min(n, batch)
	}
	return g.current + k.prefill(n, 0)
}

// check holds what workers owe against their reservations.
func (c *clock) check(r *Router) error {
	stalled := 0
	for _, slot := range r.models[anyModel].order {
		w := &r.workers[slot]
		var want, got [asAnswer + 1]int
		for at := w.active.head; at != none; at = r.slab[at].links[byWorker].next {
			e := &r.slab[at]
			want[e.owed]++
			if e.owed == asToken && !e.prefilling && !e.decodeOnly || e.owed != nothing && e.peer != ownPeer {
				return fmt.Errorf("router: reservation %d of %d is owed %d, prefilling %v", e.id, e.peer, e.owed, e.prefilling)
			}
		}
		for i, l := range [...]*list{asToken: &w.firsts, asAnswer: &w.answers} {
			if l == nil {
				continue
			}
			for at := l.head; at != none; at = r.slab[at].links[byDebt].next {
				got[i]++
			}
		}
		if got[asNext] = w.streaming; got[asToken] != want[asToken] || got[asNext] != want[asNext] || got[asAnswer] != want[asAnswer] {
			return fmt.Errorf("router: worker %v owes %v, its reservations are owed %v", w.id, got, want)
		}
		if w.stalled {
			stalled++
		} else if at := w.lateAt(r, slot); at < c.nextLate {
			return fmt.Errorf("router: worker %v will be late at %v, which is looked at after %v", w.id, at, c.nextLate)
		}
	}
	if stalled != c.stalled {
		return fmt.Errorf("router: %d workers are stalled, counted are %d", stalled, c.stalled)
	}
	return nil
}
