package router

// Metrics are counts since the start, except Active, Waiting and Promised, which are current.
type Metrics struct {
	Active, Waiting int
	Promised        int // blocks that workers are predicted to compute, each counted once per worker

	Selected [reasons]uint64 // by Reason

	JournalLost uint64 // events for replicas that were dropped before a Drain
	Applied     uint64 // events from replicas
	Duplicate   uint64 // events from replicas that told nothing new
	Stale       uint64 // events of a past epoch or about an ended reservation
	Early       uint64 // events about a reservation whose Reserved event has not arrived
	Rejected    uint64 // events that are malformed, beyond a limit, or about an unknown worker
	Claims      uint64 // claims of replicas on sessions that were the latest
}

// Metrics returns the current counts.
func (r *Router) Metrics() Metrics {
	v := &r.verdicts
	return Metrics{
		Active: r.active, Waiting: r.queue.n, Promised: r.tree.promises.Len(), Selected: r.selected, JournalLost: r.journal.lost, Claims: r.sessions.claimsApplied,
		Applied: v[Applied] + v[Made], Duplicate: v[Duplicate], Stale: v[Stale], Early: v[Early], Rejected: v[Rejected],
	}
}
