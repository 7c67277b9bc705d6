// Package router owns the choice of a worker for each request, and the predicted load of
// all workers, on which the choice is based. It never holds tokens of requests or an index
// of caches, never talks to a worker, and does not decide how a worker runs a request.
//
// One goroutine owns a [Router]. It has no lock and no clock; its only randomness comes
// from a seed, so equal calls give equal choices. Time comes in as now, counted from any
// zero. The cached prefix of a prompt at each worker comes in as overlaps, from the index.
//
// Select chooses and reserves in one step, so the next request sees the load of this one:
// two requests that arrive together do not both find the same worker idle. A
// [Reservation] ends exactly once. Progress renews it until then.
//
//	r, err := router.New(router.Config{BlockTokens: 16, Policy: router.CostLatency})
//	err = r.Join(now, kv.Rank{Worker: 1}, router.WorkerSpec{BlockTokens: 16, TotalBlocks: 27000})
//	d, err := r.Select(now, &router.Request{PromptTokens: n, Hashes: hashes, Overlaps: overlaps})
//	if errors.Is(err, router.ErrBusy) {
//		ticket, err := r.Wait(now, &req) // then Next and Take, when something changed
//	}
//	r.Progress(now, d.Reservation, 0, 1) // the first token
//	r.Release(now, d.Reservation)        // however it ended
//
// Several routers of the same workers share their reservations: Drain returns
// the events, Apply takes them, and Snapshot serves a router that starts late or missed
// events. Subpackage kvindex is the index. A request may be restricted to a pool of
// workers; [Buckets] chooses one by prompt, gateway/internal/global by length and target.
package router
