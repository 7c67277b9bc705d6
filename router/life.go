package router

import (
	"time"

	"github.com/coppice-llm/coppice/kv"
)

// end ends a reservation and tells the replicas, or remembers that it has ended if
// another router made it.
func (r *Router) end(at int32, how ending) {
	e := r.ledger.end(at, how)
	if e.peer == ownPeer {
		r.journal.released(&e)
	} else {
		r.bury(&e)
	}
}

// endOwn ends one of this router's reservations after a last word on it. False: it has
// ended already.
func (r *Router) endOwn(now time.Duration, res Reservation, how ending, last func(*reservation)) bool {
	r.advance(now)
	e := r.own(res)
	if e == nil {
		return false
	}
	last(e)
	r.end(res.at, how)
	r.verify()
	return true
}

// Begun says that a worker has begun to compute a request, which is progress. A reply that
// comes at once, nobody knows when, is owed no longer. False: the reservation has ended.
func (r *Router) Begun(now time.Duration, res Reservation) bool {
	r.advance(now)
	if r.own(res) == nil {
		return false
	}
	r.begun(res.at)
	r.verify()
	return true
}

// Progress says what a request has come to: how many tokens of its prompt were
// computed beyond the cached ones, and how many it has output, both since it
// began. The first output token ends its prefill whatever was computed. It renews
// the reservation, even by numbers that are no news; those that are say that a step
// of the worker has ended now. False: it has ended.
func (r *Router) Progress(now time.Duration, res Reservation, computedTokens, outputTokens int) bool {
	r.advance(now)
	e := r.own(res)
	if e == nil {
		return false
	}
	prefilling := e.prefilling
	if outputTokens > e.outputTokens || e.prefilling && min(computedTokens, e.uncached) > e.computed {
		r.hear(&r.workers[e.slot])
	}
	r.progress(res.at, computedTokens, min(outputTokens, MaxPromptTokens))
	if prefilling != e.prefilling || r.now-e.synced >= r.cfg.Expiry/4 {
		e.synced = r.now
		r.journal.progressed(e)
	}
	r.verify()
	return true
}

// Release ends a reservation with its request, whose answer has come to its end. It is true
// exactly once.
func (r *Router) Release(now time.Duration, res Reservation) bool {
	return r.endOwn(now, res, released, func(e *reservation) { r.hear(&r.workers[e.slot]) })
}

// Abandon ends a reservation whose answer did not come to its end: like Release, but it
// does not say that the worker has made progress.
func (r *Router) Abandon(now time.Duration, res Reservation) bool {
	return r.endOwn(now, res, released, func(*reservation) {})
}

// Rollback takes a reservation back whose request was never sent, as its caller
// went: like Abandon, and its session has the worker of before.
func (r *Router) Rollback(now time.Duration, res Reservation) bool {
	return r.endOwn(now, res, rolledBack, func(e *reservation) { r.sessions.unclaim(r.now, e) })
}

// Expired is a reservation that nobody renewed.
type Expired struct {
	Reservation Reservation // the zero Reservation if a replica made it
	Worker      kv.Rank
}

// Expire ends the reservations without progress for Config.Expiry and appends them
// to dst, the longest first. It costs a step for each of them.
func (r *Router) Expire(now time.Duration, dst []Expired) []Expired {
	r.advance(now)
	for r.ages.head != none {
		at := r.ages.head
		e := &r.slab[at]
		if r.now-e.touched < r.cfg.Expiry {
			break
		}
		x := Expired{Worker: r.workers[e.slot].id}
		if e.peer == ownPeer {
			x.Reservation = Reservation{at, e.id}
		}
		dst = append(dst, x)
		r.end(at, expired)
	}
	r.verify()
	return dst
}
