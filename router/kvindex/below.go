package kvindex

// A node with many children counts for each holder the children that it holds. So removing a
// holder below such a node costs time for its own children only: a worker that stores and clears
// one block again and again must not slow the others down. The child that a holder came into
// last is first in the list.

// manyKids is the number of children from which they are counted. Below half of it counting
// stops.
const manyKids = 64

// below returns the counts by slot, nil if the children are not counted.
func (n *node) below() []uint32 {
	if n.more == nil {
		return nil
	}
	return n.more.below
}

// setBelow sets the counts; nil stops counting.
func (n *node) setBelow(counts []uint32) {
	if n.more == nil {
		if counts == nil {
			return
		}
		n.more = &moreHolders{}
	}
	n.more.below = counts
}

// count adds by to the counts of all holders of a child.
//
// It visits only the set bits of each word: word &= word-1 clears the lowest one.
func (n *node) count(child *node, by uint32) {
	for i := range child.words() {
		for word := child.word(i).held; word != 0; word &= word - 1 {
			n.countOne(slotOf(word, i), by)
		}
	}
}

// countOne adds by to a holder's count. ^uint32(0) subtracts 1, by wrapping around.
func (n *node) countOne(slot, by uint32) {
	counts := n.more.below
	for int(slot) >= len(counts) {
		counts = append(counts, 0)
	}
	counts[slot] += by
	n.more.below = counts
}

// gainedHolder records that a holder now has the first block of a node.
//
// A child moves to the front only if the children are counted: then a removal stops as soon as it
// has found as many children as the count says, usually at the first ones.
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

// lostHolder records that a holder no longer has the first block of a node.
func (x *Index) lostHolder(n *node, slot uint32) {
	if p := x.node(n.parent); p.below() != nil {
		p.countOne(slot, ^uint32(0))
	}
}

// prepend puts id before the children of p.
func (x *Index) prepend(p *node, id nodeID) {
	n := x.node(id)
	n.prev, n.next = root, p.child
	if p.child != root {
		x.node(p.child).prev = id
	}
	p.child = id
}

// unlinkSibling takes n out of the list of p's children.
//
// It takes O(1), because siblings are linked in both directions, and it leaves the links of n as
// they are.
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

// appendKids appends those children of a node that a holder holds.
//
// left is the number of children still to be found: the exact one if they are counted, else all of
// them. Example: of 1,000 counted children a holder has 2, the ones that it came into last. If no
// other holder came into a child since, they are the first two of the list, and the loop ends
// after two steps.
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
