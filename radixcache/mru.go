package radixcache

// MRU evicts the most recently used leaf first. It exists for comparison with other
// projects; on chats it saves least.
const MRU Policy = 3

type mru struct{ plainRanking }

func newMRU(Config) ranking { return mru{} }

func (mru) rank(u *use, _ int) uint64    { return ^u.stamp }
func (mru) alike(upper, lower *use) bool { return upper.stamp <= lower.stamp }
