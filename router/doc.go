// Package router owns the choice of a worker for each request, and the predicted
// load of all workers that the choice is made by. It never holds requests' tokens
// or an index of caches, never talks to a worker, and decides nothing about what a
// worker does with a request.
//
// One goroutine owns a [Router]; there is no lock inside, no clock and no chance but
// by seed, so equal calls give equal choices. Time comes in as now, from any zero.
// What each worker has of a prompt comes in as overlaps, from the index.
//
// Select chooses and reserves in one step: the next request sees the load of this
// one, so that two that come together do not find the same worker idle. A
// [Reservation] ends exactly once, and is renewed by progress until then.
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
// Several routers of the same workers tell each other what they reserve: Drain,
// Apply, and Snapshot for who comes late or missed something. Subpackage kvindex
// is the index, and global chooses among pools of workers, which a request may be
// restricted to, as [Buckets] does by prompt.
package router
