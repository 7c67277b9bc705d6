package kvindex

import (
	"slices"

	"github.com/coppice-llm/coppice/kv"
)

// Remove records that holder h no longer has the blocks with these hashes, nor the blocks after
// them. known is the number of hashes whose blocks h had at that moment. The other hashes are
// ignored; among them are blocks that were removed because they come after an earlier one of hashes. The hashes may come in any order; last blocks first
// is cheapest. It costs time for the removed blocks. For each run that h no longer covers
// entirely, it also visits children until it has found all those that h holds.
func (x *Index) Remove(h kv.Rank, hashes []kv.BlockHash) (known int) {
	slot, ok := x.holders.slot(h)
	if !ok {
		return 0
	}
	for _, hash := range hashes {
		if id, off, ok := x.place(hash); ok && x.node(id).covered(slot) >= off {
			x.shorten(slot, id, off-1)
			known++
		}
	}
	x.verify("Remove")
	return known
}

// Clear removes all blocks of holder h, which stays known. It costs time for the nodes that h
// has blocks of, and for siblings of these nodes that other holders got later.
func (x *Index) Clear(h kv.Rank) {
	if slot, ok := x.holders.slot(h); ok {
		x.clear(slot)
	}
	x.verify("Clear")
}

// clear removes all blocks of the holder in slot.
func (x *Index) clear(slot uint32) {
	if x.holders.all[slot].blocks > 0 {
		x.dropBelow(slot, root)
	}
}

// Forget removes all blocks of holder h and makes h unknown.
func (x *Index) Forget(h kv.Rank) {
	if slot, ok := x.holders.slot(h); ok {
		x.clear(slot)
		x.holders.forget(slot)
	}
	x.verify("Forget")
}

// removeWorker forgets all holders that are ranks of worker w.
func (x *Index) removeWorker(w kv.WorkerID) {
	for slot := range x.holders.all {
		if hold := x.holders.all[slot]; hold.known && hold.holder.Worker == w {
			x.clear(uint32(slot))
			x.holders.forget(uint32(slot))
		}
	}
	x.verify("removeWorker")
}

// shorten leaves the holder in slot only the first keep blocks of the run of node id, and
// nothing below the node. The holder must have more than keep blocks of the run before.
//
// Example: a holder has the run [b0 b1 b2 b3] and a child below it. shorten with keep 2 removes
// the holder from the child and gives it a cut after b1. If no other holder has b2, trimRun then
// cuts the run to [b0 b1].
func (x *Index) shorten(slot uint32, id nodeID, keep int) {
	n := x.node(id)
	whole := n.isFull(slot)
	x.lose(slot, n.covered(slot)-keep)
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

// trimRun removes the last blocks of a run that no holder has. If no block is left, it removes
// the node and returns false.
//
// Example: a run of 6 blocks has only cuts, after 2 and after 4 blocks. The run keeps 4 blocks.
// The holder with the cut after 4 is now in full, and the other holder keeps its cut.
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
	for i := int(most); i < len(n.hashes); i++ {
		x.blocks.delete(n.hashes[i], n.start+uint32(i), id)
	}
	x.unique -= len(n.hashes) - int(most)
	if most == 0 {
		x.unlink(id)
		x.nodes.drop(id)
		return false
	}
	// Give back the memory of a run that lost more than half of its blocks.
	n.hashes = shrunk(n.hashes[:most])
	x.slots = x.slots[:0]
	for _, c := range n.cuts {
		if c.blocks == most {
			x.slots = append(x.slots, c.slot)
		}
	}
	for _, slot := range x.slots {
		n.cover(slot, int(most))
	}
	return true
}

// shrunk returns a, copied to a smaller array if it fills less than half of its array.
func shrunk[T any](a []T) []T {
	if 2*len(a) < cap(a) {
		return slices.Clone(a)
	}
	return a
}

// dropBelow removes all blocks that the holder in slot has below node top, of whose run it no
// longer covers the end. With top = root it removes all its blocks. A node's children are handled
// before the node itself: a node that loses its last holder is removed, and must have no children
// then.
func (x *Index) dropBelow(slot uint32, top nodeID) {
	x.below = x.heldBelow(slot, top, x.below[:0])
	for i := len(x.below) - 1; i > 0; i-- {
		id := x.below[i]
		n := x.node(id)
		x.lose(slot, n.covered(slot))
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
