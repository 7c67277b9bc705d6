package dispatch

import (
	"time"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/router"
)

// Seen holds what the router knew when it chose a worker for a request.
type Seen struct {
	At          time.Duration // since the Dispatcher was made
	Explanation router.Explanation
	Loads       []router.Load // of all workers, ascending by rank
}

// see records what r knows before it chooses for req. It copies the terms of all workers, which takes several times as long as the choice
// among hundreds of them. The caller holds the dispatcher's mutex.
func (s *Seen) see(r *router.Router, now time.Duration, req *router.Request) {
	s.At = now
	s.Loads = r.Loads(now, s.Loads[:0])
	var err error
	if s.Explanation, err = r.Explain(now, req); err != nil {
		s.Explanation = router.Explanation{} // then there is no choice either
	}
}

// Spec returns the spec of a joined rank, and whether it is known.
func (d *Dispatcher) Spec(w kv.Rank) (router.WorkerSpec, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	k := d.ranks[w]
	if k == nil {
		return router.WorkerSpec{}, false
	}
	spec := k.spec
	spec.Pool = d.groups.Load().pool[w.Worker]
	return spec, true
}
