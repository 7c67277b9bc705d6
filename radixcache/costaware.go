package radixcache

import (
	"math"
	"math/bits"
)

// CostAware evicts the least recently used leaf first, but keeps a leaf longer if it
// is expected to save more recomputation per token held: see credit.
const CostAware Policy = 6

// costAware keeps two numbers in use.mark: in the lower 32 bits the horizon at the
// node's last use, and in the upper 32 bits the node's forks. Forks is the number of
// children that were removed while the node had other children.
type costAware struct {
	plainRanking
	horizon uint64 // accesses since the last use at which a leaf without credit is now evicted
}

func newCostAware(Config) ranking { return &costAware{} }

func (ca *costAware) rank(u *use, end int) uint64 { return u.stamp + credit(u, end) }

// used writes the present horizon into u.mark and keeps the forks.
func (ca *costAware) used(u *use) { u.mark = u.mark>>32<<32 | ca.horizon }

// absorb adds the child's forks to the parent's, and one for the child itself if fork is
// true: the parent has other children. The parent gets the child's horizon if the child's
// last use was the later one.
func (ca *costAware) absorb(parent, child *use, fork bool) {
	forks, horizon := parent.mark>>32+child.mark>>32, parent.mark&math.MaxUint32
	if fork {
		forks++
	}
	if child.stamp >= parent.stamp { // parent.stamp is the later stamp of the two already
		horizon = child.mark & math.MaxUint32
	}
	parent.mark = min(forks, math.MaxUint32)<<32 | horizon
}

// evicted sets the horizon to the age of the leaf that is evicted, in accesses, less its
// credit: clock - rank.
func (ca *costAware) evicted(u *use, end int, clock uint64) {
	ca.horizon = min(clock-min(clock, ca.rank(u, end)), math.MaxInt32)
}

// credit returns the number of accesses by which CostAware evicts a leaf later than LRU
// would: the horizon at the leaf's last use, times the leaf's worth minus 1. end is the
// number of tokens from the root to the end of the leaf.
//
// The worth is the estimated chance that the leaf is used again times the cost to compute
// a token of it again. Several continuations (forks) make a further use more likely than
// many reuses do, which may be one long conversation: each doubling of 1+forks adds 12/64
// to the chance, each doubling of 1+hits adds 1/64. The cost of a token grows with the
// tokens before it; at 65,536 tokens it has doubled. Example: a leaf that ends at token
// 8,192, with 3 forks and 1 hit, is worth (64+24+1)/64 * (65,536+8,192)/65,536 = 1.56. If
// the horizon was 1,000 accesses, it is evicted 564 accesses later than under LRU.
//
// Credits age as in GreedyDual (Cao and Irani, 1997), with accesses as the unit: a leaf's
// credit is added to its stamp, so it counts less the longer the leaf is not used. With
// these weights no trace of bench/results/policies.md saves less than under LRU, at caches
// of 10 % and 25 % of the working set; other weights may suit other loads better.
func credit(u *use, end int) uint64 {
	forks, horizon := u.mark>>32, u.mark&math.MaxUint32
	reuse := uint64(64 + 12*(bits.Len64(1+forks)-1) + bits.Len64(1+uint64(u.hits)) - 1) // in 1/64
	cost := uint64(65536 + end)                                                         // in 1/65536
	return horizon * (reuse*cost - 1<<22) >> 22
}
