package kvindex

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
