package radixcache

// LFU evicts what was reused least often.
const LFU Policy = 1

type lfu struct{ plainRanking }

func newLFU(Config) ranking { return lfu{} }

func (lfu) rank(u *use, _ int) uint64 { return uint64(u.hits) }
