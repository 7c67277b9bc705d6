package router

import "fmt"

// Metrics are counts since the start, except Workers, Active, Waiting and Promised,
// which are current.
type Metrics struct {
	Workers, Active, Waiting int
	Promised                 int // blocks that workers are predicted to compute, each counted once per worker

	Selected   [reasons]uint64 // by Reason
	Busy       uint64          // Selects that found all workers busy
	Queued     uint64
	Refused    uint64 // requests without an eligible worker, or malformed
	Cancelled  uint64 // waiting requests that were cancelled
	Released   uint64 // reservations, including replicas'
	RolledBack uint64
	Expired    uint64
	Ended      uint64 // reservations that ended with their worker or router
	Stalled    uint64 // times that a worker became stalled

	PromptTokens  uint64 // of selected requests
	OverlapTokens uint64 // of PromptTokens, cached at the chosen worker
	BestTokens    uint64 // of PromptTokens, cached at the worker with the longest prefix

	Journal, JournalLost uint64 // events for replicas, and events dropped before a Drain
	Applied              uint64 // events from replicas
	Duplicate            uint64 // events from replicas that told nothing new
	Stale                uint64 // events of a past epoch or about an ended reservation
	Early                uint64 // events about a reservation whose Reserved event has not arrived
	Rejected             uint64 // events that are malformed, beyond a limit, or about an unknown worker
	Claims               uint64 // claims of replicas on sessions that were the latest
}

// Metrics returns the current counts.
func (r *Router) Metrics() Metrics {
	m := r.metrics
	m.Workers, m.Active, m.Waiting, m.Promised = len(r.all()), r.active, r.queue.n, r.tree.promises.Len()
	m.Released, m.RolledBack, m.Expired, m.Ended = r.endings[released], r.endings[rolledBack], r.endings[expired], r.endings[ended]
	m.Stalled, m.Claims = r.stalls, r.sessions.claimsApplied
	m.Journal, m.JournalLost = r.journal.seq, r.journal.lost
	m.Applied, m.Duplicate, m.Stale = r.verdicts[Applied]+r.verdicts[Made], r.verdicts[Duplicate], r.verdicts[Stale]
	m.Early, m.Rejected = r.verdicts[Early], r.verdicts[Rejected]
	return m
}

// String returns the counts as text, one group per line.
func (m Metrics) String() string {
	s := m.Selected
	return fmt.Sprintf(`workers %d, reservations %d, waiting %d
selected by cost %d, tie %d, chance %d, session %d, pin %d; busy %d, refused %d
queued %d, cancelled %d
reservations released %d, rolled back %d, expired %d, ended %d; workers stalled %d
prompt tokens %d, overlap %d of %d at best
replicas: journal %d, lost %d; applied %d, duplicate %d, stale %d, early %d, rejected %d, claims %d
`, m.Workers, m.Active, m.Waiting, s[ByCost], s[ByTie], s[ByChance], s[BySession], s[ByPin], m.Busy, m.Refused,
		m.Queued, m.Cancelled, m.Released, m.RolledBack, m.Expired, m.Ended, m.Stalled,
		m.PromptTokens, m.OverlapTokens, m.BestTokens, m.Journal, m.JournalLost, m.Applied, m.Duplicate, m.Stale, m.Early, m.Rejected, m.Claims)
}
