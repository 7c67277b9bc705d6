package radixcache

import "math"

// Policy says which unpinned leaf is evicted first. A reuse is a [Cache.Pin] of
// a match, or an [Cache.Insert] without a handle, that finds something; what
// [Cache.Extend] does for an unfinished request is none. Where a policy counts
// what happened to a leaf, it means all that went through it: also what ended in
// leaves below that are gone. Leaves of equal rank go by age, the least recent first.
type Policy uint8

// use is what the requests that ended at a node have left there, with what the
// node has absorbed from children that were removed.
type use struct {
	stamp uint64 // clock of the last walk
	mark  uint64 // what the policy remembers; 0 in a new node
	hits  uint32 // reuses
	prio  int32  // highest priority of a request
}

// reused adds reuses, up to what fits.
func (u *use) reused(times uint32) { u.hits += min(times, math.MaxUint32-u.hits) }

// ranking is a policy at work in one cache. It sees uses, never nodes. Embed
// [plainRanking] for all but rank.
type ranking interface {
	// rank orders leaves: the lowest goes first. end is the number of tokens from
	// the root to the end of the leaf. A rank may only change by a use, an absorb, or
	// a trim of the leaf.
	rank(u *use, end int) uint64
	// ranksByAge reports whether the rank is the stamp and nothing else is remembered:
	// leaves then need no heap.
	ranksByAge() bool
	// used notes that a walk ended at a node, at u.stamp.
	used(u *use)
	// absorb moves what the policy remembers of a removed child to its parent, after
	// stamp, hits and prio have moved. fork reports whether the parent has other
	// children.
	absorb(parent, child *use, fork bool)
	// divide is the mark of the upper half of a node that is split; the lower half
	// keeps the node's.
	divide(lower *use) (mark uint64)
	// evicted notes that a leaf is about to lose pages to make room.
	evicted(u *use, end int, clock uint64)
	// alike reports whether joining a node with its only child loses nothing: a walk
	// to the child would level all that tells them apart.
	alike(upper, lower *use) bool
	// memory is what the policy remembers beside the marks, for a snapshot; recall
	// takes it back.
	memory() uint64
	recall(memory uint64)
}

// plainRanking is the part of a ranking that remembers nothing.
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
