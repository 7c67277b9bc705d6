package radixcache

import (
	"math/bits"

	"github.com/coppice-llm/coppice/kv"
)

// forkIndex finds the child with a given first page among many by reading one
// or two slots, where a search of the runs would read a slot at each of its
// steps, all of them cold. It is a hash table with open addressing. Tail leaves
// are not in it, as nothing is ever found whole in them.
type forkIndex struct {
	slots []indexSlot // a power of two, at most three quarters in use
	used  int
}

// indexSlot is empty if id is Root.
type indexSlot struct {
	hash uint32
	id   NodeID
}

// hashFirst hashes the first page of tokens. Equal hashes are told apart by the
// tokens themselves.
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

// lookup returns the next child with a hash, Root if there are no more. at is
// the hash at first, then what the last lookup left.
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

// put adds a child.
func (x *forkIndex) put(hash uint32, id NodeID) {
	if 4*(x.used+1) > 3*len(x.slots) {
		old := x.slots
		x.slots = make([]indexSlot, max(8, 2*len(old)))
		for _, s := range old {
			if s.id != Root {
				x.place(s)
			}
		}
	}
	x.place(indexSlot{hash, id})
	x.used++
}

func (x *forkIndex) place(s indexSlot) {
	mask := uint32(len(x.slots) - 1)
	at := s.hash & mask
	for x.slots[at].id != Root {
		at = (at + 1) & mask
	}
	x.slots[at] = s
}

// slotOf is where a child stands; it must be there.
func (x *forkIndex) slotOf(hash uint32, id NodeID) uint32 {
	mask := uint32(len(x.slots) - 1)
	at := hash & mask
	for x.slots[at].id != id {
		at = (at + 1) & mask
	}
	return at
}

// take removes a child and moves up those behind it that it had pushed on. A
// table that has become much too large shrinks.
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
		old := x.slots
		x.slots = make([]indexSlot, len(old)/4)
		for _, s := range old {
			if s.id != Root {
				x.place(s)
			}
		}
	}
}
