package radixcache

import "math"

// Policy decides which unpinned leaf is evicted first. Policies count reuses: a reuse is a
// [Cache.Pin] of a match that is not empty, or an [Cache.Insert] of a key of which the tree
// held at least a page. An [Cache.Extend] is no reuse, as it continues a request that was
// counted already. The uses of a leaf include those that ended in nodes below it which were
// removed since. If two leaves are equal under the policy, the least recently used is
// evicted first.
type Policy uint8

// use sums up the requests that ended at a node, or below it in children that were removed
// and absorbed.
type use struct {
	stamp uint64 // clock at the last walk
	mark  uint64 // the policy's own value; 0 in a new node
	hits  uint32 // number of reuses
	prio  int32  // highest priority of a request
}

// reused adds times to the number of reuses. The number stops at the largest uint32: if it
// wrapped, the leaf with most reuses would become the one with fewest.
func (u *use) reused(times uint32) { u.hits += min(times, math.MaxUint32-u.hits) }

// ranking is the implementation of a policy in one cache. It sees uses, never nodes. An
// implementation embeds [plainRanking], which has all methods but rank.
type ranking interface {
	// rank returns a leaf's rank: the leaf with the lowest rank is evicted first. end
	// is the number of tokens from the root to the end of the leaf. A leaf's rank may
	// only change by a use, an absorb or a trim of that leaf: after these the caller
	// updates the leaf's place in the heap.
	rank(u *use, end int) uint64
	// ranksByAge reports whether the rank is the stamp and nothing else: leaves
	// then need no heap.
	ranksByAge() bool
	// used records that a walk ended at a node, at u.stamp. A new node is used twice at the same
	// stamp. The chunks of a request are uses, but no reuses. A Pin counts in u.hits before its
	// use, an Insert after it.
	used(u *use)
	// absorb merges the mark of a removed child into its parent's. The caller has merged
	// stamp, hits and prio before. fork reports whether the parent has other children.
	absorb(parent, child *use, fork bool)
	// divide returns the mark for the upper half of a node that is split; the lower
	// half keeps the node's.
	divide(lower *use) (mark uint64)
	// join returns the mark of the node that replaces a node (upper) and its only child
	// (lower).
	join(upper, lower *use) (mark uint64)
	// evicted records that a leaf is about to lose pages to make room. end is as for
	// rank, clock the number of accesses so far. It is not called for leaves that leave for
	// another reason, such as those that were parked: no pressure on the cache removes them.
	evicted(u *use, end int, clock uint64)
	// alike reports whether joining a node (upper) with its only child (lower) loses
	// nothing: if the node absorbed the child, it would have the rank that the child
	// has now.
	alike(upper, lower *use) bool
}

// plainRanking implements all methods of a ranking but rank, for a policy without marks
// and other state.
type plainRanking struct{}

func (plainRanking) ranksByAge() bool          { return false }
func (plainRanking) used(*use)                 {}
func (plainRanking) absorb(_, _ *use, _ bool)  {}
func (plainRanking) divide(*use) uint64        { return 0 }
func (plainRanking) evicted(*use, int, uint64) {}
func (plainRanking) join(upper, lower *use) uint64 {
	return max(upper.mark, lower.mark)
}
func (plainRanking) alike(upper, lower *use) bool {
	return upper.stamp <= lower.stamp && upper.hits == 0 && upper.mark <= lower.mark
}
