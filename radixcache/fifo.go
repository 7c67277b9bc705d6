package radixcache

// FIFO evicts the leaf that has been in the tree longest. use.mark is the clock at
// which the node was inserted; after a split both halves have it.
const FIFO Policy = 2

type fifo struct{ plainRanking }

func newFIFO(Config) ranking { return fifo{} }

func (fifo) rank(u *use, _ int) uint64 { return u.mark }

func (fifo) used(u *use) {
	if u.mark == 0 {
		u.mark = u.stamp
	}
}

func (fifo) divide(lower *use) uint64 { return lower.mark }

func (fifo) alike(upper, lower *use) bool {
	return upper.mark == lower.mark && upper.stamp <= lower.stamp
}
