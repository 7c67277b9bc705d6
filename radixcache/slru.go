package radixcache

// SLRU evicts leaves with fewer than [Config.SLRUHits] reuses first, and then the
// others; within each of the two groups the least recently used leaf first. Thus a flood
// of prompts that are used once does not displace prefixes that were reused.
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
