package scheduler

import "github.com/coppice-llm/coppice/scheduler/internal/accounts"

// LOF serves the longest output limit first (SGLang: lof).
const LOF Policy = 3

var lof = policy{
	name:    "lof",
	about:   "longest output limit",
	starves: true,
	order:   func(*Config, *accounts.Accounts) ordering { return lofOrdering{} },
}

type lofOrdering struct{ plainOrdering }

func (lofOrdering) rank(q *sequence) int64 { return -int64(q.limit) }
