package router

import (
	"time"

	"github.com/coppice-llm/coppice/kv"
)

// Select chooses a worker for req and makes a reservation there in one step, so the next request
// sees the load of this one. The caller must end the reservation when the request ends, with
// Release, Abandon or Rollback.
//
// Errors: [ErrRequest], [ErrNoWorkers], [ErrBusy], [ErrFull]; then nothing is reserved. It costs
// O(workers + blocks of the prompt) and allocates nothing in steady state.
func (r *Router) Select(now time.Duration, req *Request) (Decision, error) {
	r.advance(now)
	if err := req.check(r.cfg); err != nil {
		return Decision{}, err
	}
	if r.outranked(req) || r.allBusy(req) {
		return Decision{}, ErrBusy
	}
	return r.choose(req)
}

// outranked reports whether a waiting request has a free worker and comes before req in the
// queue's order. Without this check a new request could pass the queue in the moment between a
// release and Next.
func (r *Router) outranked(req *Request) bool {
	at := r.nextWaiting()
	return at != none && r.queue.slab[at].Before(r.queue.turnOf(req, r.now.Seconds()))
}

// nextWaiting returns the entry of the waiting request to place next, or none.
func (r *Router) nextWaiting() int32 {
	if r.active >= r.cfg.MaxActive {
		return none
	}
	return r.queue.next(&r.fleet)
}

// choose scores the candidates for req, picks one and makes the reservation. Errors: [ErrFull],
// [ErrNoWorkers].
func (r *Router) choose(req *Request) (Decision, error) {
	if r.active >= r.cfg.MaxActive {
		return Decision{}, ErrFull
	}
	r.scorer.score(req)
	if len(r.scorer.candidates) == 0 {
		return Decision{}, ErrNoWorkers
	}
	slot, reason := r.pick(req)
	return r.book(req, slot, reason), nil
}

// pick returns the slot of the chosen candidate and the reason: the pinned worker or the
// session's, else a random draw if the temperature is above 0, else a worker with the lowest
// cost. Ties are broken at random, so that equal workers share the load, but under
// CostRoundRobin the first worker is taken.
func (r *Router) pick(req *Request) (int32, Reason) {
	s := &r.scorer
	if slot, reason, ok := r.bound(req); ok {
		return slot, reason
	}
	if s.weights.Temperature > 0 {
		return s.sample(r.chance.unit()), ByChance
	}
	ties, tied := s.lowest()
	if !tied {
		return ties[0], ByCost
	}
	if s.cfg.Policy == CostRoundRobin || len(ties) == 1 {
		return ties[0], ByTie
	}
	return ties[r.chance.below(len(ties))], ByTie
}

// bound returns the slot of the worker to which a request is bound, and the reason. That is the
// pinned worker, or the session's worker if that is eligible, not busy and not stalled. If ok,
// the third result, is false, the request is not bound.
func (r *Router) bound(req *Request) (int32, Reason, bool) {
	if req.Pinned != nil {
		return r.scorer.candidates[0], ByPin, true
	}
	if w, ok := r.sessions.get(r.now, req.Session); ok {
		if slot := r.slotOf(w); slot != noEntry {
			w := &r.workers[slot]
			return slot, BySession, w.eligible(req) && !w.stalled && !w.busy(r.cfg.BusyFactor)
		}
	}
	return noEntry, 0, false
}

// book makes a reservation for req on the worker in slot, stores the session's claim, appends
// the event for replicas and counts the choice.
func (r *Router) book(req *Request, slot int32, reason Reason) Decision {
	s := &r.scorer
	w, o := &r.workers[slot], s.overlaps[slot]
	o.Worker = w.id
	a := s.specFor(slot, req)
	term := s.due(req, slot)
	r.lastID++
	r.choices++
	w.lastChosen = r.choices
	at := r.reserve(slot, ownPeer, r.lastID, &a)
	e := &r.slab[at]
	w.addDebt(r.slab, at, req, r.now, term)
	r.updateNextLate(w)
	r.sessions.claim(r.now, e, req.Session, w.id)
	r.journal.reserved(e, w.id, a.hashes)
	r.selected[reason]++
	r.verify()
	return Decision{Reservation{at, r.lastID}, w.id, s.costs[slot], o, reason}
}

// Wait queues a request for which Select returned ErrBusy. The router keeps the request's slices
// until the ticket ends. Errors: [ErrRequest], [ErrNoWorkers] if no known worker may run it,
// *[QueueFullError].
func (r *Router) Wait(now time.Duration, req *Request) (Ticket, error) {
	r.advance(now)
	err := req.check(r.cfg)
	if any, _ := r.prospects(req); err == nil && !any {
		err = ErrNoWorkers
	}
	if err == nil && r.queue.n >= r.cfg.MaxQueued {
		err = &QueueFullError{r.queue.n, r.cfg.MaxQueued}
	}
	if err != nil {
		return Ticket{}, err
	}
	return r.queue.enqueue(req, r.queue.turnOf(req, r.now.Seconds())), nil
}

// Next returns the waiting request to place next, or false if no worker has room for one.
// Progress, Release, Report and Join can make room. After each of them call Next, and Take
// for the request that it returned, until Next returns false. Find the cached prefixes of
// the request again before Take, because they have likely changed while it waited.
func (r *Router) Next(now time.Duration) (Ticket, *Request, bool) {
	r.advance(now)
	at := r.nextWaiting()
	if at == none {
		return Ticket{}, nil, false
	}
	w := &r.queue.slab[at]
	return Ticket{at, w.id}, &w.req, true
}

// Take is Select for the waiting request of ticket t. overlaps replaces its Overlaps. Errors are
// those of Select, and [ErrTicket] if the ticket has ended. The ticket ends with this call,
// except if the error is [ErrBusy] or [ErrFull].
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
	// The entry is freed before the choice, so the request is copied.
	req := w.req
	req.Overlaps = overlaps
	if r.cfg.Order == Fair {
		r.queue.shares.now = max(r.queue.shares.now, -w.rank)
	}
	r.queue.dequeue(t.at)
	if err := req.check(r.cfg); err != nil {
		return Decision{}, err
	}
	return r.choose(&req)
}

// Cancel removes the request of ticket t from the queue. It returns false if the ticket has
// ended.
func (r *Router) Cancel(t Ticket) bool {
	if r.queue.waits(t) == nil {
		return false
	}
	r.queue.dequeue(t.at)
	return true
}

// Queued returns the number of waiting requests.
func (r *Router) Queued() int { return r.queue.n }

// SessionPool returns the pool of the worker of req.Session if that worker is healthy, else 0. A
// caller that may choose any pool should send the session's next request to this pool, where its
// prefix is cached.
func (r *Router) SessionPool(now time.Duration, req *Request) PoolID {
	w, ok := r.SessionWorker(now, req.Session)
	if !ok {
		return 0
	}
	at, err := r.find(w)
	if err != nil || at.health != Healthy {
		return 0
	}
	return at.spec.Pool
}

// SessionWorker returns the worker to which a session is bound, in whatever health it is.
func (r *Router) SessionWorker(now time.Duration, session uint64) (kv.Rank, bool) {
	r.advance(now)
	return r.sessions.get(r.now, session)
}

// Explain returns the costs and probabilities of the candidates if Select were called for req
// now. It reserves nothing. Errors: [ErrRequest], [ErrNoWorkers].
func (r *Router) Explain(now time.Duration, req *Request) (Explanation, error) {
	r.advance(now)
	if err := req.check(r.cfg); err != nil {
		return Explanation{}, err
	}
	s := &r.scorer
	s.score(req)
	if len(s.candidates) == 0 {
		return Explanation{}, ErrNoWorkers
	}
	slot, reason, ok := r.bound(req)
	if !ok {
		slot, reason = noEntry, ByCost
		if _, tied := s.lowest(); s.weights.Temperature > 0 {
			reason = ByChance
		} else if tied {
			reason = ByTie
		}
	}
	return s.explain(slot, reason), nil
}
