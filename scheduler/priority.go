package scheduler

import "github.com/coppice-llm/coppice/scheduler/internal/accounts"

// Priority serves the highest Request.Priority first, then by arrival. A waiting
// request may preempt a running one of lower priority, see Config.PreemptThreshold.
const Priority Policy = 6

var priority = policy{
	name:     "priority",
	starves:  true,
	preempts: true,
	order:    func(*Config, *accounts.Accounts) ordering { return priorityOrdering{} },
}

type priorityOrdering struct{ plainOrdering }

func (priorityOrdering) rank(q *sequence) int64 { return -int64(q.req.Priority) }
