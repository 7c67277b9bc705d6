package radixcache

import (
	"math"
	"math/bits"
)

// CostAware evicts the least recently used leaf first, but keeps leaves longer that
// save more recomputation per token held: see credit.
const CostAware Policy = 6

// costAware keeps two numbers in a mark: in the lower 32 bits the horizon at the last
// use, and in the upper 32 bits the node's forks, the number of branches that it lost.
type costAware struct {
	plainRanking
	horizon uint64 // age, in accesses, at which leaves without credit are evicted at present
}

func newCostAware(Config) ranking { return &costAware{} }

func (ca *costAware) rank(u *use, end int) uint64 { return u.stamp + credit(u, end) }

// used renews the horizon of a mark and keeps its forks.
func (ca *costAware) used(u *use) { u.mark = u.mark>>32<<32 | ca.horizon }

// absorb adds the child's forks to the parent's, and one for the child itself if the
// parent has other children. The horizon is that of the later use.
func (ca *costAware) absorb(parent, child *use, fork bool) {
	forks, horizon := parent.mark>>32+child.mark>>32, parent.mark&math.MaxUint32
	if fork {
		forks++
	}
	if child.stamp >= parent.stamp { // parent.stamp has absorbed it
		horizon = child.mark & math.MaxUint32
	}
	parent.mark = min(forks, math.MaxUint32)<<32 | horizon
}

// evicted sets the horizon to the victim's age, less its credit: clock - rank.
func (ca *costAware) evicted(u *use, end int, clock uint64) {
	ca.horizon = min(clock-min(clock, ca.rank(u, end)), math.MaxInt32)
}

func (ca *costAware) memory() uint64        { return ca.horizon }
func (ca *costAware) recall(horizon uint64) { ca.horizon = horizon }

// credit is the number of accesses by which a leaf goes later than under LRU: the
// horizon at its last use, times the leaf's worth per token beyond 1.
//
// The worth is the chance that the leaf is used again times the cost to compute it
// again. Several continuations (forks) speak for a further use more than many reuses
// do, which may be one long conversation: each doubling of 1+forks counts 12/64, each
// doubling of 1+hits 1/64. The cost of a token grows with the tokens before it: twice
// at 65,536. Example: a leaf that ends at token 8,192, with 3 forks and 1 hit, is
// worth (64+24+1)/64 * (65,536+8,192)/65,536 = 1.56, so at a horizon of 1,000 it goes
// 564 accesses later than under LRU.
//
// The ageing is GreedyDual's (Cao and Irani, 1997) with accesses as the unit: a credit
// is worth less the longer it was not renewed. With these weights no trace of
// bench/results/policies.md saves less than under LRU, at 10 % and 25 % of the working
// set; other weights may suit other loads better.
func credit(u *use, end int) uint64 {
	forks, horizon := u.mark>>32, u.mark&math.MaxUint32
	reuse := uint64(64 + 12*(bits.Len64(1+forks)-1) + bits.Len64(1+uint64(u.hits)) - 1) // in 1/64
	cost := uint64(65536 + end)                                                         // in 1/65536
	return horizon * (reuse*cost - 1<<22) >> 22
}
