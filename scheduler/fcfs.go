package scheduler

import "github.com/coppice-llm/coppice/scheduler/internal/accounts"

// FCFS serves in order of arrival.
const FCFS Policy = 0

var fcfs = policy{
	name:  "fcfs",
	order: func(*Config, *accounts.Accounts) ordering { return fcfsOrdering{} },
}

// fcfsOrdering leaves the order to age, so the oldest needs no turn of its own.
type fcfsOrdering struct{ plainOrdering }

func (fcfsOrdering) rank(*sequence) int64 { return 0 }
