package kvindex

import "github.com/coppice-llm/coppice/kv"

// holders numbers the known holders. The numbers, called slots, are bit positions in the nodes'
// sets. They are as small as possible, because the slot of a forgotten holder is reused: with 64
// holders each set of a node is one word. A slot is reused only after forget, when no node has
// its bit any longer.
type holders struct {
	slots map[kv.Rank]uint32
	all   []holding // indexed by slot
	free  []uint32
}

// holding is the state of one slot.
type holding struct {
	holder kv.Rank
	blocks int // number of blocks it holds
	known  bool
}

// slot returns the slot of holder h; the second result is false if h is unknown.
func (hs *holders) slot(h kv.Rank) (uint32, bool) {
	slot, ok := hs.slots[h]
	return slot, ok
}

// add makes a holder known and returns its slot.
func (hs *holders) add(h kv.Rank) uint32 {
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

// Swap exchanges the blocks of holders a and b in O(1). Either may be unknown; then it has no
// blocks to give, and the other one becomes unknown.
func (x *Index) Swap(a, b kv.Rank) {
	if a == b {
		return
	}
	slotA, knownA := x.holders.slots[a]
	slotB, knownB := x.holders.slots[b]
	// Only the names of the slots change, so no node is touched.
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

// Held returns the number of blocks that h holds, 0 if h is unknown.
func (x *Index) Held(h kv.Rank) int {
	if slot, ok := x.holders.slot(h); ok {
		return x.holders.all[slot].blocks
	}
	return 0
}
