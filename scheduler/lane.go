package scheduler

import "github.com/coppice-llm/coppice/scheduler/internal/accounts"

// lane is a part of the queue whose sequences can be taken or skipped together. They belong
// to one tenant where tenants are told apart, and all or none of them are long. A lane has
// a heap by rank, lowest first, and a heap by age.
type lane struct {
	key    laneKey
	at     int // index in queue.lanes
	ranked seqHeap
	aged   seqHeap // empty unless policy.starves
}

// laneKey names a lane. If tenants are told apart (limits, or policy.byTenant), each has lanes of
// its own, so that the lanes of a tenant at its limit are skipped without a look at their
// sequences. Long prompts have lanes of their own, so that others can pass them while enough long
// prompts are being computed.
type laneKey struct {
	tenant *accounts.Tenant // nil: not told apart
	class  int              // see ordering.class
	long   bool
}

// head returns the sequence of lowest rank, which goes first. The lane must not be empty.
func (l *lane) head() *sequence { return l.ranked.head() }
