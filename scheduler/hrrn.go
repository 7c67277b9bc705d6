package scheduler

import (
	"math/bits"

	"github.com/coppice-llm/coppice/scheduler/internal/accounts"
)

// HRRN serves the highest response ratio: work since arrival over uncached tokens
// (Brinch Hansen 1971; SGLang: hrrn).
const HRRN Policy = 4

var hrrn = policy{
	name:    "hrrn",
	about:   "highest ratio of waiting time to length",
	byCache: true,
	starves: true,
	order:   func(*Config, *accounts.Accounts) ordering { return hrrnOrdering{} },
}

// hrrnOrdering ranks by age within a class of uncached tokens, because response ratios grow at
// different speeds.
type hrrnOrdering struct{ plainOrdering }

func (hrrnOrdering) rank(q *sequence) int64 { return int64(q.group.born) }

// class sorts counts of uncached tokens into classes of an eighth of an octave.
// Within a class the oldest sequence has the highest response ratio, to within an eighth,
// so best compares only the heads of lanes. For example, 1000 tokens have e = 9 and the
// class 9·8+7 = 79, which holds 960 to 1023.
func (hrrnOrdering) class(q *sequence) int {
	u := uint(max(len(q.tokens)-q.wait.cached, 1))
	e := bits.Len(u) - 1
	return e<<3 | int(u<<3>>e&7)
}

func (hrrnOrdering) best(w *queue, work uint64) (best *sequence) {
	var ratio float64
	for _, l := range w.lanes {
		if w.closed(l) {
			continue
		}
		q := l.head()
		r := float64(work-q.group.born+1) / float64(max(len(q.tokens)-q.wait.cached, 1))
		if best == nil || r > ratio || r == ratio && q.arrival < best.arrival {
			best, ratio = q, r
		}
	}
	return best
}
