package kvindex

import (
	"slices"

	"github.com/coppice-llm/coppice/kv"
)

// Remove records that a holder no longer has some blocks, nor those after them. It returns how
// many of the hashes it had. The others are counted and ignored, among them those already
// removed with an earlier one. The hashes may come in any order; last blocks first is cheapest.
// It costs time for the removed blocks, and for the children before the holder's own of each run
// that it no longer covers entirely.
func (x *Index) Remove(h kv.Rank, hashes []kv.BlockHash) (known int) {
	slot, ok := x.holders.slot(h)
	if !ok {
		x.stats.UnknownBlocks += uint64(len(hashes))
		return 0
	}
	before := x.held
	for _, hash := range hashes {
		if id, off, ok := x.place(hash); ok && x.node(id).covered(slot) >= off {
			x.shorten(slot, id, off-1)
			known++
		}
	}
	x.stats.RemovedBlocks += uint64(before - x.held)
	x.stats.UnknownBlocks += uint64(len(hashes) - known)
	x.verify("Remove")
	return known
}

// Clear removes all blocks of a holder, which stays known. It costs time for the nodes that it
// is in, and for siblings that other holders came into later.
func (x *Index) Clear(h kv.Rank) {
	if slot, ok := x.holders.slot(h); ok {
		x.clear(slot)
	}
	x.verify("Clear")
}

// clear removes all blocks of a slot.
func (x *Index) clear(slot uint32) {
	before := x.held
	if x.holders.all[slot].blocks > 0 {
		x.dropBelow(slot, root)
	}
	x.stats.RemovedBlocks += uint64(before - x.held)
}

// heads lists the runs of a holder by their first blocks, parents before children.
type heads struct {
	hashes []kv.BlockHash
	blocks []int32 // number of blocks that it has of each
}

// heads lists the runs of h. It changes nothing and costs as much as Clear, without the blocks.
func (x *Index) heads(h kv.Rank) (all heads) {
	slot, ok := x.holders.slot(h)
	if !ok {
		return all
	}
	ids := []nodeID{root}
	for i := 0; i < len(ids); i++ {
		n := x.node(ids[i])
		if i > 0 {
			all.hashes = append(all.hashes, n.hashes[0])
			all.blocks = append(all.blocks, int32(n.covered(slot)))
		}
		ids = x.appendKids(n, slot, ids)
	}
	return all
}

// Forget clears a holder and makes it unknown.
func (x *Index) Forget(h kv.Rank) {
	if slot, ok := x.holders.slot(h); ok {
		x.clear(slot)
		x.holders.forget(slot)
	}
	x.verify("Forget")
}

// removeWorker forgets all ranks of a worker.
func (x *Index) removeWorker(w kv.WorkerID) {
	for slot := range x.holders.all {
		if hold := x.holders.all[slot]; hold.known && hold.holder.Worker == w {
			x.clear(uint32(slot))
			x.holders.forget(uint32(slot))
		}
	}
	x.verify("removeWorker")
}

// trim calls shorten and counts the removed blocks.
func (x *Index) trim(slot uint32, id nodeID, keep int) {
	before := x.held
	x.shorten(slot, id, keep)
	x.stats.RemovedBlocks += uint64(before - x.held)
}

// shorten reduces a holder to the first keep blocks of a run of which it has more, and to
// nothing below it.
//
// Example: a holder has the run [b0 b1 b2 b3] and a child below it. shorten to 2 blocks removes it
// from the child and gives it a cut after b1. If no other holder has b2, trimRun then cuts the run
// to [b0 b1].
func (x *Index) shorten(slot uint32, id nodeID, keep int) {
	n := x.node(id)
	whole := n.isFull(slot)
	x.addHeld(slot, keep-n.covered(slot))
	n.cover(slot, keep)
	if keep == 0 {
		x.lostHolder(n, slot)
	}
	// Only a holder of the whole run can hold children.
	if whole && n.kids > 0 {
		x.dropBelow(slot, id)
	}
	parent := n.parent
	if x.trimRun(id) {
		x.join(id)
	}
	x.join(parent)
}

// trimRun cuts off the end of a run that no holder has. It returns false if nothing is left and
// the node was removed.
//
// Example: a run of 6 blocks has only cuts, after 2 and after 4 blocks. The run keeps 4 blocks,
// the holder of the longer cut is now in full, and the other one keeps its cut.
func (x *Index) trimRun(id nodeID) bool {
	n := x.node(id)
	if n.anyFull() {
		return true
	}
	// The longest cut is the new end of the run; its holders then cover the whole run.
	var most uint32
	for _, c := range n.cuts {
		most = max(most, c.blocks)
	}
	for _, hash := range n.hashes[most:] {
		x.blocks.cut(uint64(hash), 0)
	}
	x.unique -= len(n.hashes) - int(most)
	if most == 0 {
		x.unlink(id)
		x.nodes.drop(id)
		return false
	}
	// Give back the memory of a run that lost more than half of its blocks.
	n.locals, n.hashes = shrunk(n.locals[:most]), shrunk(n.hashes[:most])
	x.slots = x.slots[:0]
	for _, c := range n.cuts {
		if c.blocks == most {
			x.slots = append(x.slots, c.slot)
		}
	}
	for _, slot := range x.slots {
		n.makeFull(slot)
	}
	return true
}

// makeFull replaces a cut that is as long as the run by a bit in full.
func (n *node) makeFull(slot uint32) {
	at := n.cutOf(slot)
	n.cuts = slices.Delete(n.cuts, at, at+1)
	if len(n.cuts) == 0 {
		n.cuts = nil
	}
	p := n.word(int(slot / 64))
	p.full |= 1 << (slot % 64)
	n.setWord(int(slot/64), p)
}

// shrunk copies a slice that fills less than half of its array.
func shrunk[T any](a []T) []T {
	if 2*len(a) < cap(a) {
		return slices.Clone(a)
	}
	return a
}

// dropBelow removes all blocks of a holder below a node whose run it no longer covers. Nodes are
// visited before their children and settled after them, without recursion: a path may have as
// many nodes as blocks.
//
// The order matters: a child is settled before its parent, because a parent that lost its last
// holder is removed, and must have no children then.
func (x *Index) dropBelow(slot uint32, top nodeID) {
	x.below = append(x.below[:0], top)
	for i := 0; i < len(x.below); i++ {
		x.below = x.appendKids(x.node(x.below[i]), slot, x.below)
	}
	for i := len(x.below) - 1; i > 0; i-- {
		id := x.below[i]
		n := x.node(id)
		x.addHeld(slot, -n.covered(slot))
		n.cover(slot, 0)
		x.lostHolder(n, slot)
		if x.trimRun(id) {
			x.join(id)
		}
	}
	// Do not keep the scratch memory of one huge removal.
	if cap(x.below) > 1<<16 {
		x.below = nil
	}
}
