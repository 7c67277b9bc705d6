package scheduler

import "github.com/coppice-llm/coppice/scheduler/internal/accounts"

// LPM serves the longest cached prefix first (SGLang: lpm), so that cached prefixes
// are used before they are evicted. Waiting time counts as cached tokens, see
// Config.Aging.
const LPM Policy = 1

var lpm = policy{
	name:    "lpm",
	about:   "longest cached prefix",
	byCache: true,
	starves: true,
	order:   func(cfg *Config, _ *accounts.Accounts) ordering { return newLPM(cfg) },
}

// lpmOrdering counts waiting time. The time of all sequences grows alike, and only the
// difference of their arrivals matters: q goes before o if
//
//	cached(q) + (work - born(q))/Aging  >  cached(o) + (work - born(o))/Aging
//
// work cancels out, so the inequality holds at all times or never. The rank, lowest first,
// is therefore born/Aging - cached.
type lpmOrdering struct {
	plainOrdering
	aging int64
}

func newLPM(cfg *Config) lpmOrdering { return lpmOrdering{aging: int64(cfg.Aging)} }

func (o lpmOrdering) rank(q *sequence) int64 {
	return int64(q.group.born)/o.aging - int64(q.wait.cached)
}
