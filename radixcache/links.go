package radixcache

import "slices"

// A link is a node with a single child. Link and child could be one run: after a
// split whose other half was evicted, or along the turns of a conversation. Links
// are joined again, but not at once: each join copies both runs, and the next
// request may split them at the same place. So links wait in a queue, oldest
// first, until there are too many of them.
//
// The bound is a part of the number of leaves and forks, the only nodes of a tree
// that was built in one go (fresh). Until something was removed links may be half
// as many: when the queue is that long, most conversations in it are over. After a
// removal they may be a sixteenth, since memory is scarce, and few are joined at a
// time. With 1,000 leaves and forks, that is 500 links first and 8 + 62 = 70 later.
//
// Some joins lose something: if a request ended at the link after the last one
// that went on to its child, the two should be evicted at different times. Such
// a stiff link is joined only when there would else be more than twice the nodes
// of a fresh tree; then both halves count as used when the later one was.
//
// A link with pins is not joined; its last Unpin queues it again.

// links counts the links of a tree and queues them for joining.
type links struct {
	count   int
	loose   []linkID // links to join first when there are too many
	stiff   []linkID // links taken from loose because joining them loses something
	spared  NodeID   // a link that the running call returns, so must not join; or Root
	removed bool     // whether pages were ever removed to make room or for their age
}

// linkID names a link as long as its slot has the same gen.
type linkID struct {
	id  NodeID
	gen uint32
}

// isLink reports whether a node and its one child could be one run: the child is
// no tail leaf, no private space begins between them, and both or neither are
// distrusted, as a mark is on a whole node.
func (s *slab) isLink(n *node) bool {
	if n.count != 1 || n.fork != nil || n.flags&(hasDoors|isRoot) != 0 {
		return false
	}
	child := &s.nodes[n.few[0].id]
	return !s.isTail(child) && (n.flags^child.flags)&distrusted == 0
}

// shape is the part of a node's state that is counted. Every change of a node's
// children stands between a call of shapeOf and one of reshaped, which updates
// the counts by the difference.
type shape struct{ leaf, link bool }

func (s *slab) shapeOf(id NodeID) shape {
	n := &s.nodes[id]
	if n.flags&isRoot != 0 {
		return shape{}
	}
	return shape{n.isLeaf(), s.isLink(n)}
}

// reshaped updates the counts after a node's shape changed from was, and queues
// the node if it became a link.
func (s *slab) reshaped(id NodeID, was shape) {
	is := s.shapeOf(id)
	s.counts.Leaves += count(is.leaf) - count(was.leaf)
	s.links.count += count(is.link) - count(was.link)
	if is.link && !was.link {
		s.loosen(id)
	}
}

// loosen queues a link for joining, unless it is queued or links are not joined.
func (s *slab) loosen(id NodeID) {
	n := &s.nodes[id]
	if s.cfg.WholeLeaves || n.flags&queued != 0 {
		return
	}
	s.enqueue(&s.links.loose, linkID{id, n.gen})
}

// enqueue appends a link to a queue. Entries whose node is no longer a link stay
// in the queue until a sweep removes them. The sweep runs when the queue is longer
// than 64 + 4 times the number of links: then three quarters of it or more are
// stale, and its cost is amortised O(1) per entry.
func (s *slab) enqueue(queue *[]linkID, l linkID) {
	if len(*queue) > 64+4*s.links.count {
		*queue = slices.DeleteFunc(*queue, func(l linkID) bool {
			n := &s.nodes[l.id]
			if n.gen == l.gen && s.isLink(n) {
				return false
			}
			if n.gen == l.gen {
				n.flags &^= queued
			}
			return true
		})
	}
	s.nodes[l.id].flags |= queued
	*queue = append(*queue, l)
}

// popLink removes the oldest entry from a queue and returns it.
func (s *slab) popLink(queue *[]linkID) linkID {
	l := (*queue)[0]
	*queue = (*queue)[1:]
	if n := &s.nodes[l.id]; n.gen == l.gen {
		n.flags &^= queued
	}
	return l
}

// fresh returns the number of nodes that a tree of the same content would have if
// it was built in one go: the leaves and forks.
func (s *slab) fresh() int { return s.counts.Nodes - s.links.count }

// limit returns the number of links that the tree may have. The 8 spare a small
// tree from a join at each split; the minimum keeps the bound of twice the fresh nodes.
func (s *slab) limit() int {
	if s.links.removed {
		return min(8+s.fresh()/16, s.fresh())
	}
	return s.fresh() / 2
}
