package kvindex

import (
	"slices"

	"github.com/coppice-llm/coppice/kv"
)

// Remove notes that a holder has blocks no more, nor those behind them. It
// returns how many of the hashes it had; the others are counted and left alone,
// among them those that went with one before them. In which order hashes come
// does not matter; last blocks first is cheapest. Cost: what goes, and as
// many children of a run that is not whole any more as come before the holder's.
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

// Clear takes all blocks of a holder, which stays known. Cost: the nodes that it
// is in, and the siblings that others came into later.
func (x *Index) Clear(h kv.Rank) {
	if slot, ok := x.holders.slot(h); ok {
		x.clear(slot)
	}
	x.verify("Clear")
}

func (x *Index) clear(slot uint32) {
	before := x.held
	if x.holders.all[slot].blocks > 0 {
		x.dropBelow(slot, root)
	}
	x.stats.RemovedBlocks += uint64(before - x.held)
}

// heads are the runs of a holder by their first blocks, parents before children.
type heads struct {
	hashes []kv.BlockHash
	blocks []int32 // that it has of each
}

// heads finds them. It changes nothing. Cost: that of Clear, without the blocks.
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

// Forget clears a holder and does not know it any more.
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

// trim is shorten for a holder's own sake: it counts what goes.
func (x *Index) trim(slot uint32, id nodeID, keep int) {
	before := x.held
	x.shorten(slot, id, keep)
	x.stats.RemovedBlocks += uint64(before - x.held)
}

// shorten lets a holder keep the first blocks of a run of which it has more, and
// nothing below it.
func (x *Index) shorten(slot uint32, id nodeID, keep int) {
	n := x.node(id)
	whole := n.isFull(slot)
	x.give(slot, keep-n.covered(slot))
	n.cover(slot, keep)
	if keep == 0 {
		x.went(n, slot)
	}
	if whole && n.kids > 0 {
		x.dropBelow(slot, id)
	}
	parent := n.parent
	if x.settle(id) {
		x.join(id)
	}
	x.join(parent)
}

// settle cuts off what nobody has of a run. False if nothing is left and the node
// is gone.
func (x *Index) settle(id nodeID) bool {
	n := x.node(id)
	if n.anyFull() {
		return true
	}
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
	n.locals, n.hashes = shrunk(n.locals[:most]), shrunk(n.hashes[:most])
	x.slots = x.slots[:0]
	for _, c := range n.cuts {
		if c.blocks == most {
			x.slots = append(x.slots, c.slot)
		}
	}
	for _, slot := range x.slots {
		n.wholeNow(slot)
	}
	return true
}

// wholeNow makes a cut that is as long as the run a bit.
func (n *node) wholeNow(slot uint32) {
	at := n.cutOf(slot)
	n.cuts = slices.Delete(n.cuts, at, at+1)
	if len(n.cuts) == 0 {
		n.cuts = nil
	}
	p := n.word(int(slot / 64))
	p.full |= 1 << (slot % 64)
	n.setWord(int(slot/64), p)
}

// shrunk moves a slice that fills less than half of its array.
func shrunk[T any](a []T) []T {
	if 2*len(a) < cap(a) {
		return slices.Clone(a)
	}
	return a
}

// dropBelow takes all that a holder has below a node, whose run it has not to the
// end any more. Nodes are visited before their children and settled after them;
// no recursion, as a path may have as many nodes as blocks.
func (x *Index) dropBelow(slot uint32, top nodeID) {
	x.below = append(x.below[:0], top)
	for i := 0; i < len(x.below); i++ {
		x.below = x.appendKids(x.node(x.below[i]), slot, x.below)
	}
	for i := len(x.below) - 1; i > 0; i-- {
		id := x.below[i]
		n := x.node(id)
		x.give(slot, -n.covered(slot))
		n.cover(slot, 0)
		x.went(n, slot)
		if x.settle(id) {
			x.join(id)
		}
	}
	if cap(x.below) > 1<<16 {
		x.below = nil
	}
}
