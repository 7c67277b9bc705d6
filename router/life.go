package router

import (
	"time"

	"github.com/coppice-llm/coppice/kv"
)

// end ends reservation at (its index in the slab). If this router made the reservation, its replicas get an event. If a replica made it, the end is remembered, so
// that a late event does not make the reservation again.
func (r *Router) end(at int32) {
	e := r.ledger.end(at)
	if e.peer == ownPeer {
		r.journal.released(&e)
	} else {
		r.recordEnd(&e)
	}
}

// endOwn calls last with the entry of res, a reservation of this router, and then ends the
// reservation. It returns false, and does not call last, if the reservation has ended before.
func (r *Router) endOwn(now time.Duration, res Reservation, last func(*reservation)) bool {
	r.advance(now)
	e := r.own(res)
	if e == nil {
		return false
	}
	last(e)
	r.end(res.at)
	r.verify()
	return true
}

// Begun notes that a worker has begun to compute a request, which counts as progress of the
// worker. If the request's Reply is AtOnce and ExpectedOutput was not given, the length of the
// answer is unknown, so from now on the worker can no longer be late with it. Begun returns
// false if the reservation has ended.
func (r *Router) Begun(now time.Duration, res Reservation) bool {
	r.advance(now)
	if r.own(res) == nil {
		return false
	}
	r.begun(res.at)
	r.verify()
	return true
}

// Progress sets the totals of a request since its start: computed prompt tokens beyond the
// cached ones, and output tokens. The first output token ends its prefill, whatever
// computedTokens says. Progress returns false if the reservation has ended.
//
// Each call renews the reservation, so that Expire does not end it. Higher totals also prove
// that a step of the worker has ended now. Replicas get an event when the prefill ends. They
// also get one for a renewal if a quarter of Expiry has passed since the last event; so a single
// lost event does not let the reservation expire at a replica.
func (r *Router) Progress(now time.Duration, res Reservation, computedTokens, outputTokens int) bool {
	r.advance(now)
	e := r.own(res)
	if e == nil {
		return false
	}
	prefilling := e.prefilling
	if outputTokens > e.outputTokens || e.prefilling && min(computedTokens, e.uncached) > e.computed {
		r.noteProgress(&r.workers[e.slot])
	}
	r.progress(res.at, computedTokens, min(outputTokens, MaxPromptTokens))
	if prefilling != e.prefilling || r.now-e.synced >= r.cfg.Expiry/4 {
		e.synced = r.now
		r.journal.progressed(e)
	}
	r.verify()
	return true
}

// Release ends a reservation whose answer is complete, which counts as progress of the worker.
// The first call returns true, any later one false; a reservation that has ended in another way
// gives false too.
func (r *Router) Release(now time.Duration, res Reservation) bool {
	return r.endOwn(now, res, func(e *reservation) { r.noteProgress(&r.workers[e.slot]) })
}

// Abandon ends a reservation whose answer did not complete. Unlike Release it does not count as
// progress of the worker. It returns false if the reservation has ended before.
func (r *Router) Abandon(now time.Duration, res Reservation) bool {
	return r.endOwn(now, res, func(*reservation) {})
}

// Rollback ends a reservation whose request was never sent, because its caller left. It is like
// Abandon, but it also returns the session to its previous worker, unless a later request has
// claimed the session.
func (r *Router) Rollback(now time.Duration, res Reservation) bool {
	return r.endOwn(now, res, func(e *reservation) { r.sessions.unclaim(r.now, e) })
}

// Expired is a reservation that ended for lack of progress.
type Expired struct {
	Reservation Reservation // the zero Reservation if a replica made it
	Worker      kv.Rank
}

// Expire ends the reservations, also those of replicas, that have had no progress for
// Config.Expiry. It appends them to dst, the longest without progress first. It costs one step
// per expired reservation.
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
		r.end(at)
	}
	r.verify()
	return dst
}
