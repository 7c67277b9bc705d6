package radixcache

import (
	"math"
	"math/bits"
)

// CostAware evicts the least recently used, but keeps longer what saves more
// recomputation per token held: see credit.
const CostAware Policy = 6

// costAware has in the lower half of a mark the horizon at the last use, and in
// the upper half the node's forks: the branches that it has lost.
type costAware struct {
	plainRanking
	horizon uint64 // accesses for which, at present, a leaf without credit is kept
}

func newCostAware(Config) ranking { return &costAware{} }

func (ca *costAware) rank(u *use, end int) uint64 { return u.stamp + credit(u, end) }

func (ca *costAware) used(u *use) { u.mark = u.mark>>32<<32 | ca.horizon }

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

func (ca *costAware) evicted(u *use, end int, clock uint64) {
	ca.horizon = min(clock-min(clock, ca.rank(u, end)), math.MaxInt32)
}

func (ca *costAware) memory() uint64        { return ca.horizon }
func (ca *costAware) recall(horizon uint64) { ca.horizon = horizon }

// credit is how much later than under LRU a leaf goes: the horizon at
// its last use, times what a token of it is worth beyond 1. That is the chance
// that it is used again, for which several continuations speak more than many
// reuses (these may be one long conversation), times the cost to compute it
// again, which grows with what stands before it. The ageing is GreedyDual's (Cao
// and Irani, 1997) in accesses for its unit: a credit is worth less the longer it
// was not renewed. The weights are those under which no trace of
// bench/results/policies.md saves less than under LRU.
func credit(u *use, end int) uint64 {
	forks, horizon := u.mark>>32, u.mark&math.MaxUint32
	reuse := uint64(64 + 12*(bits.Len64(1+forks)-1) + bits.Len64(1+uint64(u.hits)) - 1) // in 1/64
	cost := uint64(65536 + end)                                                         // in 1/65536
	return horizon * (reuse*cost - 1<<22) >> 22
}
