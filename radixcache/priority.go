package radixcache

import "math"

// Priority evicts the leaf of the lowest priority first; see [Cache.Prioritize]. The
// rank is the priority plus 2^31, as ranks are unsigned.
const Priority Policy = 5

type byPriority struct{ plainRanking }

func newPriority(Config) ranking { return byPriority{} }

func (byPriority) rank(u *use, _ int) uint64 { return uint64(int64(u.prio) - math.MinInt32) }

func (byPriority) alike(upper, lower *use) bool {
	return upper.stamp <= lower.stamp && upper.prio <= lower.prio
}
