package radixcache

// LRU evicts the least recently used leaf first. Stamps only rise, so leaves are kept
// in a line and no heap is needed: see eviction.
const LRU Policy = 0

type lru struct{ plainRanking }

func newLRU(Config) ranking { return lru{} }

func (lru) rank(u *use, _ int) uint64    { return u.stamp }
func (lru) ranksByAge() bool             { return true }
func (lru) alike(upper, lower *use) bool { return upper.stamp <= lower.stamp }
