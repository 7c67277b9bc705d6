package radixcache

import (
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strings"
)

// Policy says which unpinned leaf is evicted first. A reuse is a [Cache.Pin] of
// a match, or an [Cache.Insert] without a handle, that finds something; what
// [Cache.Extend] does for an unfinished request is none. Where a policy counts
// what happened to a leaf, it means all that went through it: also what ended in
// leaves below that are gone.
type Policy uint8

// The policies. Equal ones by age, the least recent first.
const (
	LRU       Policy = iota // least recently used
	LFU                     // fewest reuses
	FIFO                    // longest in the tree
	MRU                     // most recently used
	SLRU                    // never reused, then the rest
	Priority                // lowest priority of a request, see Cache.Prioritize
	CostAware               // least recently used, but what saves more recomputation per token held is kept longer: see credit
)

var policyNames = [...]string{"lru", "lfu", "fifo", "mru", "slru", "priority", "cost-aware"}

func (p Policy) String() string {
	if int(p) < len(policyNames) {
		return policyNames[p]
	}
	return fmt.Sprintf("policy(%d)", uint8(p))
}

// UnmarshalText takes the names that String gives, in any case.
func (p *Policy) UnmarshalText(text []byte) error {
	at := slices.Index(policyNames[:], strings.ToLower(string(text)))
	if at < 0 {
		return fmt.Errorf("radixcache: unknown policy %q, want %s", text, strings.Join(policyNames[:], ", "))
	}
	*p = Policy(at)
	return nil
}

// rank is what a leaf stands by in a heap: the smallest goes first.
func (c *Cache) rank(n *node) uint64 {
	switch c.cfg.Policy {
	case LFU:
		return uint64(n.hits)
	case FIFO:
		return n.mark
	case MRU:
		return ^n.stamp
	case SLRU:
		return uint64(min(n.hits, 1))
	case Priority:
		return uint64(int64(n.prio) - math.MinInt32)
	case CostAware:
		return n.stamp + credit(n)
	}
	panic(fmt.Sprintf("radixcache: policy %v has no ranks", c.cfg.Policy))
}

// remark writes down at a walk's end what rank will need. Under FIFO that is
// when the node came; under CostAware the horizon at its last use, in the lower
// half, beside its forks in the upper: the branches that it has lost.
func (c *Cache) remark(n *node) {
	switch c.cfg.Policy {
	case FIFO:
		if n.mark == 0 {
			n.mark = c.clock
		}
	case CostAware:
		n.mark = n.mark>>32<<32 | c.horizon
	}
}

// absorbMark is absorb for marks; the child is no longer among the children.
func (c *Cache) absorbMark(parent, child *node) {
	if c.cfg.Policy != CostAware {
		return
	}
	forks, horizon := parent.mark>>32+child.mark>>32, parent.mark&math.MaxUint32
	if !parent.isLeaf() {
		forks++ // it had at least two branches
	}
	if child.stamp >= parent.stamp { // parent.stamp has absorbed it
		horizon = child.mark & math.MaxUint32
	}
	parent.mark = min(forks, math.MaxUint32)<<32 | horizon
}

// evicted lets the policy learn from a victim: how long, at present, what has no
// credit is kept.
func (c *Cache) evicted(n *node) {
	if c.cfg.Policy == CostAware {
		c.horizon = min(c.clock-min(c.clock, c.rank(n)), math.MaxInt32)
	}
}

// credit is how much later than LRU would have it a leaf goes: the horizon at
// its last use, times what a token of it is worth beyond 1. That is the chance
// that it is used again, for which several continuations speak more than many
// reuses (these may be one long conversation), times the cost to compute it
// again, which grows with what stands before it. The ageing is GreedyDual's (Cao
// and Irani, 1997) in accesses for its unit: a credit is worth less the longer it
// was not renewed. The weights are those under which no trace of
// bench/results/policies.md saves less than under LRU.
func credit(n *node) uint64 {
	forks, horizon := n.mark>>32, n.mark&math.MaxUint32
	reuse := uint64(64 + 12*(bits.Len64(1+forks)-1) + bits.Len64(1+uint64(n.hits)) - 1) // in 1/64
	cost := uint64(65536 + n.end())                                                     // in 1/65536
	return horizon * (reuse*cost - 1<<22) >> 22
}

// blend tells whether a node and its only child, by the policy, differ in
// nothing that a walk to the child would not level: then they may be one.
func (c *Cache) blend(upper, lower *node) bool {
	switch c.cfg.Policy {
	case LRU, MRU:
		return upper.stamp <= lower.stamp
	case FIFO:
		return upper.mark == lower.mark && upper.stamp <= lower.stamp
	case Priority:
		return upper.stamp <= lower.stamp && upper.prio <= lower.prio
	}
	return upper.stamp <= lower.stamp && upper.hits == 0 && upper.mark <= lower.mark
}
