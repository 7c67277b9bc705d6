package kvindex

import (
	"cmp"
	"slices"
)

// WorkerID names a worker of the fleet.
type WorkerID uint64

// Holder is what owns blocks: one data-parallel rank of a worker, 0 without ranks.
type Holder struct {
	Worker WorkerID
	Rank   uint32
}

// Compare orders holders by worker, then rank.
func (h Holder) Compare(g Holder) int {
	return cmp.Or(cmp.Compare(h.Worker, g.Worker), cmp.Compare(h.Rank, g.Rank))
}

// holders numbers the holders densely, as bits of the nodes' sets: a slot is
// given again when its holder was forgotten.
type holders struct {
	slots map[Holder]uint32
	all   []holding // by slot
	free  []uint32
}

type holding struct {
	holder Holder
	blocks int // that it holds, counted
	known  bool
}

// slot returns a known holder's.
func (hs *holders) slot(h Holder) (uint32, bool) {
	slot, ok := hs.slots[h]
	return slot, ok
}

// add makes a holder known.
func (hs *holders) add(h Holder) uint32 {
	var slot uint32
	if last := len(hs.free) - 1; last >= 0 {
		slot, hs.free = hs.free[last], hs.free[:last]
	} else {
		slot = uint32(len(hs.all))
		hs.all = append(hs.all, holding{})
	}
	hs.all[slot] = holding{holder: h, known: true}
	hs.slots[h] = slot
	return slot
}

// forget frees the slot of a holder without blocks.
func (hs *holders) forget(slot uint32) {
	delete(hs.slots, hs.all[slot].holder)
	hs.all[slot] = holding{}
	hs.free = append(hs.free, slot)
}

// Swap lets two holders change places: each has then what the other had. Cost: O(1).
func (x *Index) Swap(a, b Holder) {
	if a == b {
		return
	}
	slotA, knownA := x.holders.slots[a]
	slotB, knownB := x.holders.slots[b]
	delete(x.holders.slots, a)
	delete(x.holders.slots, b)
	if knownA {
		x.holders.slots[b], x.holders.all[slotA].holder = slotA, b
	}
	if knownB {
		x.holders.slots[a], x.holders.all[slotB].holder = slotB, a
	}
	x.verify("Swap")
}

// Holders appends those known to dst, ascending. A cleared holder is known, a
// removed one is not.
func (x *Index) Holders(dst []Holder) []Holder {
	at := len(dst)
	for i := range x.holders.all {
		if x.holders.all[i].known {
			dst = append(dst, x.holders.all[i].holder)
		}
	}
	slices.SortFunc(dst[at:], Holder.Compare)
	return dst
}

// Held is how many blocks a holder has; 0 if it is not known.
func (x *Index) Held(h Holder) int {
	if slot, ok := x.holders.slot(h); ok {
		return x.holders.all[slot].blocks
	}
	return 0
}
