package router

import (
	"time"

	"github.com/coppice-llm/coppice/kv"
)

// end ends a reservation. Replicas get an event if this router made it; otherwise the end
// is remembered, so that a late event does not make the reservation again.
func (r *Router) end(at int32, how ending) {
	e := r.ledger.end(at, how)
	if e.peer == ownPeer {
		r.journal.released(&e)
	} else {
		r.recordEnd(&e)
	}
}

// endOwn ends a reservation of this router, after last has been applied to it. It
// returns false if the reservation has ended before.
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

// Begun takes the notice that a worker has begun to compute a request; that is
// progress. A reply at once of unknown length is no longer owed from then on. It
// returns false if the reservation has ended.
func (r *Router) Begun(now time.Duration, res Reservation) bool {
	r.advance(now)
	if r.own(res) == nil {
		return false
	}
	r.begun(res.at)
	r.verify()
	return true
}

// Progress takes the totals of a request since it began: computed prompt tokens beyond
// the cached ones, and output tokens. The first output token ends its prefill, whatever
// was computed.
//
// Each call renews the reservation. Higher totals also prove that a step of the worker
// has ended now. Replicas get an event at the end of the prefill, and of a renewal every
// quarter of Expiry, so that one lost event does not expire it there. It returns false
// if the reservation has ended.
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

// Release ends a reservation whose answer is complete, which counts as progress of the
// worker. It returns true exactly once.
func (r *Router) Release(now time.Duration, res Reservation) bool {
	return r.endOwn(now, res, released, func(e *reservation) { r.noteProgress(&r.workers[e.slot]) })
}

// Abandon ends a reservation whose answer did not complete. Unlike Release it does not
// count as progress of the worker.
func (r *Router) Abandon(now time.Duration, res Reservation) bool {
	return r.endOwn(now, res, released, func(*reservation) {})
}

// Rollback ends a reservation whose request was never sent, because its caller left:
// like Abandon, and the session returns to its previous worker.
func (r *Router) Rollback(now time.Duration, res Reservation) bool {
	return r.endOwn(now, res, rolledBack, func(e *reservation) { r.sessions.unclaim(r.now, e) })
}

// Expired is a reservation that ended for lack of progress.
type Expired struct {
	Reservation Reservation // the zero Reservation if a replica made it
	Worker      kv.Rank
}

// Expire ends the reservations without progress for Config.Expiry and appends them to
// dst, the longest without progress first. It costs one step per expired reservation.
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
