package router

import (
	"fmt"
	"time"

	"github.com/coppice-llm/coppice/kv"
)

// SetPool moves a worker into a pool, or out of all with 0. Its reservations and its
// health stay, and who waits for a pool finds it there from now on. It costs a step for
// each of its models. [ErrUnknownWorker] tells of one that is not there.
func (r *Router) SetPool(now time.Duration, w kv.Rank, pool PoolID) error {
	r.advance(now)
	slot := r.slotOf(w)
	if slot == noEntry {
		return fmt.Errorf("%w: %v", ErrUnknownWorker, w)
	}
	if r.workers[slot].spec.Pool == pool {
		return nil
	}
	r.delist(slot)
	r.workers[slot].spec.Pool = pool
	r.enlist(slot)
	r.recount(slot)
	r.verify()
	return nil
}

// SessionPool is the pool of the worker that a session has, if it may be chosen for req:
// where pools are chosen at will, its next request had better stay there. 0: there is none.
func (r *Router) SessionPool(now time.Duration, req *Request) PoolID {
	r.advance(now)
	w, ok := r.sessions.get(r.now, req.Session)
	if !ok {
		return 0
	}
	slot := r.slotOf(w)
	if slot == noEntry || r.workers[slot].standing == unfit {
		return 0
	}
	return r.workers[slot].spec.Pool
}
