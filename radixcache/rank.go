package radixcache

import "math"

// Policy decides which unpinned leaf is evicted first. A reuse is a [Cache.Pin] of a
// match, or an [Cache.Insert] without a handle, that finds something. An
// [Cache.Extend] is none, as it continues a request that was counted already. Where a
// policy counts the uses of a leaf, it means all walks through it, also those that
// ended in leaves below that are gone. Leaves of equal rank go by age, the least
// recently used first.
type Policy uint8

// use sums up the requests that ended at a node, and those that ended in children
// which were removed and absorbed.
type use struct {
	stamp uint64 // clock at the last walk
	mark  uint64 // the policy's own value; 0 in a new node
	hits  uint32 // number of reuses
	prio  int32  // highest priority of a request
}

// reused adds reuses. The count stops at the largest uint32 instead of wrapping, which
// would make the hottest leaf the coldest.
func (u *use) reused(times uint32) { u.hits += min(times, math.MaxUint32-u.hits) }

// ranking is a policy at work in one cache. It sees uses, never nodes. Embed
// [plainRanking] in an implementation and add rank, which it lacks.
type ranking interface {
	// rank orders leaves: the lowest goes first. end is the number of tokens from
	// the root to the end of the leaf. A leaf's rank may only change by a use, an
	// absorb or a trim of that leaf, after which its place in the heap is updated.
	rank(u *use, end int) uint64
	// ranksByAge reports whether the rank is the stamp and nothing else: leaves
	// then need no heap.
	ranksByAge() bool
	// used records that a walk ended at a node, at u.stamp.
	used(u *use)
	// absorb merges the mark of a removed child into its parent's, after stamp, hits
	// and prio were merged. fork reports whether the parent has other children.
	absorb(parent, child *use, fork bool)
	// divide returns the mark for the upper half of a node that is split; the lower
	// half keeps the node's.
	divide(lower *use) (mark uint64)
	// evicted records that a leaf is about to lose pages to make room.
	evicted(u *use, end int, clock uint64)
	// alike reports whether joining a node with its only child loses nothing: once
	// the node had absorbed the child, it would rank as the child does now.
	alike(upper, lower *use) bool
	// memory returns the policy's state outside the marks, for a snapshot; recall
	// restores it.
	memory() uint64
	recall(memory uint64)
}

// plainRanking implements the part of a ranking that has no state.
type plainRanking struct{}

func (plainRanking) ranksByAge() bool          { return false }
func (plainRanking) used(*use)                 {}
func (plainRanking) absorb(_, _ *use, _ bool)  {}
func (plainRanking) divide(*use) uint64        { return 0 }
func (plainRanking) evicted(*use, int, uint64) {}
func (plainRanking) memory() uint64            { return 0 }
func (plainRanking) recall(uint64)             {}
func (plainRanking) alike(upper, lower *use) bool {
	return upper.stamp <= lower.stamp && upper.hits == 0 && upper.mark <= lower.mark
}
