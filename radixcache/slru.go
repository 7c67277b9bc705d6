package radixcache

// SLRU evicts what was reused less than [Config.SLRUHits] times, least recent
// first, and then the rest.
const SLRU Policy = 4

type slru struct {
	plainRanking
	hits uint32
}

func newSLRU(cfg Config) ranking { return slru{hits: uint32(cfg.SLRUHits)} }

func (s slru) rank(u *use, _ int) uint64 {
	if u.hits >= s.hits {
		return 1
	}
	return 0
}
