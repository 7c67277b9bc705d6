package router

import "fmt"

// Metrics are counts since the start, but for Workers, Active, Waiting and Promised.
type Metrics struct {
	Workers, Active, Waiting int
	Promised                 int // blocks that workers are predicted to compute, each once for a worker

	Selected   [reasons]uint64 // by Reason
	Busy       uint64          // Selects that found all busy
	Queued     uint64
	Refused    uint64 // requests that could go nowhere
	Cancelled  uint64 // in the queue
	Released   uint64 // reservations, with those of replicas
	RolledBack uint64
	Expired    uint64
	Ended      uint64 // with their worker or their router
	Stalled    uint64 // times that a worker was late with what it owed

	PromptTokens  uint64 // of selected requests
	OverlapTokens uint64 // of them, what the chosen worker had
	BestTokens    uint64 // of them, what the worker with most of it had

	Journal, JournalLost uint64 // events for replicas, and those that nobody fetched
	Applied              uint64 // events of replicas
	Duplicate            uint64 // that changed nothing
	Stale                uint64 // of an epoch or a reservation that is past
	Early                uint64 // about a reservation that is not known yet
	Rejected             uint64 // malformed, beyond a limit, or of an unknown worker
	Claims               uint64 // on sessions, of replicas, that were the latest
}

// Metrics are the counts of now.
func (r *Router) Metrics() Metrics {
	m := r.metrics
	m.Workers, m.Active, m.Waiting, m.Promised = len(r.all()), r.active, r.queue.n, r.tree.promises.n
	m.Released, m.RolledBack, m.Expired, m.Ended = r.endings[released], r.endings[rolledBack], r.endings[expired], r.endings[ended]
	m.Stalled, m.Claims = r.stalls, r.sessions.heeded
	m.Journal, m.JournalLost = r.journal.seq, r.journal.lost
	m.Applied, m.Duplicate, m.Stale = r.verdicts[Applied]+r.verdicts[Made], r.verdicts[Duplicate], r.verdicts[Stale]
	m.Early, m.Rejected = r.verdicts[Early], r.verdicts[Rejected]
	return m
}

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
