package router

import (
	"time"

	"github.com/coppice-llm/coppice/kv"
)

// Reservation is the place of one request in the predicted load of a worker. It
// ends exactly once, by Release, Rollback, Expire or Leave, and is worth nothing
// from then on: all else that is done with it is refused. The zero Reservation is
// none. It is comparable.
type Reservation struct {
	at int32
	id uint64 // from 1, never used again
}

// ownPeer marks what this router itself reserved.
const ownPeer = -1

// reservation is an entry of the slab.
type reservation struct {
	id   uint64 // of the router that made it; 0 where the entry is free
	peer int32  // that router: an index of Router.peers, or ownPeer
	slot int32  // the worker
	end  int32  // node of the tree

	promptTokens int
	computed     int // of uncached
	uncached     int // tokens to be computed, at the beginning
	outputTokens int
	privatePart  int // blocks of the prompt that are not shared
	private      int // blocks, with the outputs'
	decodeOnly   bool
	prefilling   bool
	untold       bool // of the request

	promise
	debt

	predicted time.Duration // what is left of the prompt, by profile
	touched   time.Duration // of the last progress
	synced    time.Duration // when the replicas were last told

	affinity

	links [lists]link
}

// affinity is what a reservation has done to its session.
type affinity struct {
	session   uint64  // whose worker it set, 0 none
	previous  kv.Rank // the session's before it
	had       bool    // there was one
	unclaimed bool    // it was taken back, and the session with it
	stamp     uint64  // of the last claim
}

// asked is what a reservation is made of.
type asked struct {
	hashes       []kv.BlockHash
	promptTokens int
	uncached     int
	privatePart  int
	decodeOnly   bool
	predicted    time.Duration
	untold       bool
	known        int // blocks of the prompt that the index has at the worker
}

// reserve adds to the predicted load of a worker; there is room in the slab.
func (r *Router) reserve(slot, peer int32, id uint64, a *asked) int32 {
	at := int32(len(r.slab))
	if n := len(r.freeEntries); n > 0 {
		at = r.freeEntries[n-1]
		r.freeEntries = r.freeEntries[:n-1]
	} else {
		r.slab = append(r.slab, reservation{})
	}
	e, w := &r.slab[at], &r.workers[slot]
	*e = reservation{
		id: id, peer: peer, slot: slot, promptTokens: a.promptTokens, uncached: a.uncached, privatePart: a.privatePart,
		private: a.privatePart, decodeOnly: a.decodeOnly, untold: a.untold, prefilling: !a.decodeOnly, touched: r.now, synced: r.now,
	}
	added := 0
	e.end, added = r.tree.insert(slot, a.hashes)
	w.hashed += added
	w.private += e.private
	if w.requests == 0 {
		w.heard = r.now
	}
	w.requests++
	w.reservedSince++
	w.contextTokens += e.promptTokens
	r.active++
	r.ages.push(r.slab, at)
	w.active.push(r.slab, at)
	if e.prefilling {
		if w.prefilling == 0 {
			w.anchor = r.now
		}
		e.predicted = a.predicted
		w.prefilling++
		w.prefillTokens += e.uncached
		w.predicted += e.predicted
		w.prefillingQueue.push(r.slab, at)
		if r.cfg.Predict && !a.untold {
			r.tree.promise(e, a.hashes, a.known)
		}
	}
	r.recount(slot)
	r.verify()
	return at
}

// progress takes what a request has come to; less than before changes nothing.
func (r *Router) progress(at int32, computed, output int) {
	e := &r.slab[at]
	w := &r.workers[e.slot]
	e.touched = r.now
	r.ages.remove(r.slab, at)
	r.ages.push(r.slab, at)
	if output > e.outputTokens {
		w.contextTokens += output - e.outputTokens
		e.outputTokens = output
		blocks := kv.CeilPages(e.promptTokens+output, r.cfg.BlockTokens) - kv.CeilPages(e.promptTokens, r.cfg.BlockTokens)
		w.private += e.privatePart + blocks - e.private
		e.private = e.privatePart + blocks
	}
	if e.prefilling {
		r.compute(at, computed)
	}
	if e.outputTokens > 0 {
		w.flow(r.slab, at)
	}
	r.recount(e.slot)
	r.verify()
}

// compute takes how much of its prompt a request has computed.
func (r *Router) compute(at int32, computed int) {
	e := &r.slab[at]
	w := &r.workers[e.slot]
	if computed = min(computed, e.uncached); computed > e.computed {
		left := float64(e.uncached-computed) / float64(e.uncached-e.computed)
		rest := time.Duration(left * float64(e.predicted))
		w.predicted -= e.predicted - rest
		w.prefillTokens -= computed - e.computed
		e.predicted, e.computed = rest, computed
		if w.prefillingQueue.head == at {
			w.anchor = r.now
		}
	}
	if e.outputTokens > 0 {
		r.endPrefill(at)
	}
}

// endPrefill takes a request out of those before their first token.
func (r *Router) endPrefill(at int32) {
	e := &r.slab[at]
	if !e.prefilling {
		return
	}
	w := &r.workers[e.slot]
	if w.prefillingQueue.head == at {
		w.anchor = r.now
	}
	w.prefillingQueue.remove(r.slab, at)
	w.prefilling--
	w.prefillTokens -= e.uncached - e.computed
	w.predicted -= e.predicted
	e.prefilling, e.predicted = false, 0
	r.tree.endPromise(e)
}

// ending says how a reservation ended.
type ending uint8

const (
	released ending = iota
	rolledBack
	expired
	ended // with its worker, or with the router that made it
)

// end takes a reservation out of all that it is in.
func (r *Router) end(at int32, how ending) {
	r.endPrefill(at)
	e := &r.slab[at]
	w := &r.workers[e.slot]
	w.settle(r.slab, at)
	w.hashed -= r.tree.remove(e.slot, e.end)
	w.private -= e.private
	w.requests--
	w.contextTokens -= e.promptTokens + e.outputTokens
	r.active--
	r.ages.remove(r.slab, at)
	w.active.remove(r.slab, at)
	r.recount(e.slot)
	switch how {
	case released:
		r.metrics.Released++
	case rolledBack:
		r.metrics.RolledBack++
	case expired:
		r.metrics.Expired++
	case ended:
		r.metrics.Ended++
	}
	if e.peer == ownPeer {
		r.journalReleased(e)
	} else {
		r.remote.delete(key{e.id, uint32(e.peer)})
		r.bury(e.peer, e.id)
	}
	*e = reservation{}
	r.freeEntries = append(r.freeEntries, at)
	r.verify()
}

// own is the slab's entry of one of this router's reservations, or nil if it has
// ended.
func (r *Router) own(res Reservation) *reservation {
	if res.id == 0 || res.at < 0 || int(res.at) >= len(r.slab) {
		return nil
	}
	if e := &r.slab[res.at]; e.id == res.id && e.peer == ownPeer {
		return e
	}
	return nil
}

// Progress says what a request has come to: how many tokens of its prompt were
// computed beyond the cached ones, and how many it has output, both since it
// began. The first output token ends its prefill whatever was computed. It renews
// the reservation, even by numbers that are no news; those that are tell that a step
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
		r.journalProgress(e)
	}
	return true
}

// Release ends a reservation with its request, whose answer has come to its end. It is true
// exactly once.
func (r *Router) Release(now time.Duration, res Reservation) bool {
	r.advance(now)
	e := r.own(res)
	if e == nil {
		return false
	}
	r.hear(&r.workers[e.slot])
	r.end(res.at, released)
	return true
}

// Rollback takes a reservation back whose request was never sent, as its caller
// went: like Release, and its session has the worker of before.
func (r *Router) Rollback(now time.Duration, res Reservation) bool {
	r.advance(now)
	e := r.own(res)
	if e == nil {
		return false
	}
	r.unclaim(e)
	r.end(res.at, rolledBack)
	return true
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
	return dst
}
