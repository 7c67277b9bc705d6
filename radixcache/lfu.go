package radixcache

// LFU evicts the leaf with the fewest reuses first. Hits never age, so a conversation
// that was used often stays long after it is over.
const LFU Policy = 1

type lfu struct{ plainRanking }

func newLFU(Config) ranking { return lfu{} }

func (lfu) rank(u *use, _ int) uint64 { return uint64(u.hits) }
