package kvindex

import "slices"

// link makes node id, whose run and holders are set, the first child of node parent.
func (x *Index) link(parent, id nodeID) {
	p, n := x.node(parent), x.node(id)
	n.parent = parent
	x.prepend(p, id)
	p.kids++
	switch {
	case p.below() != nil:
		p.count(n, 1)
	case p.kids == x.manyKids:
		p.setBelow([]uint32{})
		for kid := p.child; kid != root; kid = x.node(kid).next {
			p.count(x.node(kid), 1)
		}
	}
}

// unlink removes node id from the children of its parent.
func (x *Index) unlink(id nodeID) {
	n := x.node(id)
	p := x.node(n.parent)
	x.unlinkSibling(n, p)
	p.kids--
	if p.below() != nil {
		if p.count(n, ^uint32(0)); p.kids < x.manyKids/2 {
			p.setBelow(nil)
		}
	}
}

// moveChildren moves all children of node from to node to, which has none.
func (x *Index) moveChildren(from, to nodeID) {
	f, t := x.node(from), x.node(to)
	for id := f.child; id != root; id = x.node(id).next {
		x.node(id).parent = to
	}
	t.child, t.kids = f.child, f.kids
	t.setBelow(f.below())
	f.child, f.kids = root, 0
	f.setBelow(nil)
}

// split cuts the run of node id after k blocks, 0 < k < its length, into two nodes, and returns
// the upper one. One of the two keeps the ID; the table entries of the other's blocks must be
// changed to a new ID. split gives the new ID to the node for which that is cheaper.
//
// Example: of a run of 1,000 blocks without children, a split after 3 blocks gives the upper 3
// blocks the new ID and changes 3 table entries, not 997.
func (x *Index) split(id nodeID, k int) nodeID {
	other := x.nodes.add()
	n, o := x.node(id), x.node(other)
	upper, lower := *n, *n // with the links of n, fixed below
	upper.hashes, lower.hashes = slices.Clone(n.hashes[:k]), slices.Clone(n.hashes[k:])
	lower.start += uint32(k)
	partHolders(n, &upper, &lower, k)

	parent := n.parent
	// A new ID for the upper half changes the entries of k blocks. A new ID for the lower half changes
	// those of its blocks, and the parent of each child.
	if k <= len(lower.hashes)+int(n.kids) {
		lower.setBelow(n.below())
		x.unlink(id)
		*n, *o = lower, upper
		o.child, o.kids = root, 0
		x.rename(o, id, other)
		x.link(parent, other)
		x.link(other, id)
		return other
	}
	upper.setBelow(n.below())
	*n, *o = upper, lower
	o.child, o.kids = root, 0
	x.moveChildren(id, other)
	x.rename(o, id, other)
	x.link(id, other)
	return id
}

// partHolders sets the holders of upper and lower, the two parts of n, which is cut after k
// blocks. A cut in the upper part stays there. A longer cut covers the upper part and continues in
// the lower.
func partHolders(n, upper, lower *node, k int) {
	for _, part := range [...]*node{upper, lower} {
		part.cuts, part.more = nil, nil
		for i := range n.words() {
			full := n.word(i).full
			part.setWord(i, pair{full, full})
		}
	}
	for _, c := range n.cuts {
		blocks := int(c.blocks)
		upper.cover(c.slot, min(blocks, k))
		lower.cover(c.slot, max(blocks-k, 0))
	}
}

// join merges node id with its only child if both fit into one run, and returns the node that
// remains: id if nothing was merged. No information about holders is lost, because every holder
// of the child covers the whole run of id.
//
// Joining keeps the number of steps of a lookup small: without it, every split would remain,
// even if the prompt that caused it is gone by now.
func (x *Index) join(id nodeID) nodeID {
	n := x.node(id)
	if id == root || n.kids != 1 {
		return id
	}
	child := n.child
	c := x.node(child)
	if len(n.hashes)+len(c.hashes) > x.runBlocks {
		return id
	}
	whole := node{hashes: slices.Concat(n.hashes, c.hashes), start: n.start}
	x.joinHolders(&whole, n, c)
	// Keep the ID of the node whose blocks and children are more expensive to move.
	stays, goes := child, id
	if len(c.hashes)+int(c.kids) < len(n.hashes) {
		stays, goes = id, child
	}
	x.rename(x.node(goes), goes, stays)
	parent := n.parent
	x.unlink(child)
	x.unlink(id)
	if stays == id {
		x.moveChildren(child, id)
	}
	s := x.node(stays)
	whole.child, whole.kids = s.child, s.kids
	whole.setBelow(s.below())
	*s = whole
	x.link(parent, stays)
	x.nodes.drop(goes)
	return stays
}

// joinHolders sets the holders of whole, the run that results when n and its child c are joined.
func (x *Index) joinHolders(whole, n, c *node) {
	k := len(n.hashes)
	for i := range c.words() {
		full := c.word(i).full
		whole.setWord(i, pair{full, full})
	}
	// Holders of all of n but nothing of c end at the border.
	for i := range n.words() {
		for _, slot := range slotsOf(n.word(i).full&^c.word(i).held, i, x.slots[:0]) {
			whole.cover(slot, k)
		}
	}
	for _, cut := range n.cuts {
		whole.cover(cut.slot, int(cut.blocks))
	}
	for _, cut := range c.cuts {
		whole.cover(cut.slot, k+int(cut.blocks))
	}
}

// A node with many children counts for each holder the children that it holds. So removing a
// holder below such a node costs time for its own children only: a worker that stores and clears
// one block again and again must not slow the others down. The child that a holder came into
// last is first in the list.

// manyKids is the number of children from which a node counts its children by holder. Below half
// of it, the node stops counting.
const manyKids = 64

// below returns the number of children by slot of their holder, or nil if the node does not
// count.
func (n *node) below() []uint32 {
	if n.more == nil {
		return nil
	}
	return n.more.below
}

// setBelow sets the counts by slot. With nil the node stops counting.
func (n *node) setBelow(counts []uint32) {
	if n.more == nil {
		if counts == nil {
			return
		}
		n.more = &moreHolders{}
	}
	n.more.below = counts
}

// count adds by to the counts of all slots that hold the first block of child. It visits only
// the set bits of each word: word &= word-1 clears the lowest one.
func (n *node) count(child *node, by uint32) {
	for i := range child.words() {
		for word := child.word(i).held; word != 0; word &= word - 1 {
			n.countOne(slotOf(word, i), by)
		}
	}
}

// countOne adds by to the count of a slot. To subtract 1, pass ^uint32(0): the sum wraps around.
func (n *node) countOne(slot, by uint32) {
	counts := n.more.below
	for int(slot) >= len(counts) {
		counts = append(counts, 0)
	}
	counts[slot] += by
	n.more.below = counts
}

// gainedHolder records that the holder in slot now has the first block of node id. If the parent
// counts its children, the node also moves to the front of the list of children. Then appendKids
// for this holder finds as many children as its count says in few steps, usually at the front.
func (x *Index) gainedHolder(id nodeID, slot uint32) {
	n := x.node(id)
	p := x.node(n.parent)
	if p.below() == nil {
		return
	}
	p.countOne(slot, 1)
	if p.child != id {
		x.unlinkSibling(n, p)
		x.prepend(p, id)
	}
}

// lostHolder records that the holder in slot no longer has the first block of node n.
func (x *Index) lostHolder(n *node, slot uint32) {
	if p := x.node(n.parent); p.below() != nil {
		p.countOne(slot, ^uint32(0))
	}
}

// prepend puts node id in front of the list of p's children.
func (x *Index) prepend(p *node, id nodeID) {
	n := x.node(id)
	n.prev, n.next = root, p.child
	if p.child != root {
		x.node(p.child).prev = id
	}
	p.child = id
}

// unlinkSibling takes n out of the list of p's children and leaves the links of n as they are.
// It takes O(1), because siblings are linked in both directions.
func (x *Index) unlinkSibling(n, p *node) {
	if n.prev != root {
		x.node(n.prev).next = n.next
	} else {
		p.child = n.next
	}
	if n.next != root {
		x.node(n.next).prev = n.prev
	}
}

// appendKids appends to dst the children of n that the holder in slot holds.
//
// The variable left is the number of children still to be found: exact if n counts its children,
// else the number of all children not visited yet. Example: of 1,000 counted children a holder
// has 2, the ones whose first block it got last. If no other holder has got the first block of a
// child since, the two are the first of the list, and the loop ends after two steps.
func (x *Index) appendKids(n *node, slot uint32, dst []nodeID) []nodeID {
	left := n.kids
	if counts := n.below(); counts != nil {
		if left = 0; int(slot) < len(counts) {
			left = counts[slot]
		}
	}
	for id := n.child; id != root && left > 0; id = x.node(id).next {
		if x.node(id).isHeld(slot) {
			dst = append(dst, id)
			left--
		}
	}
	return dst
}
