package radixcache

import "slices"

// A link is a node with a single child, so that the two could be one node. Links arise
// when a node was split and the other child of its upper half was evicted, or when
// requests extend a conversation turn by turn. Links are joined with their children,
// but not at once: a join copies the tokens of both, and the next request may split the
// node at the same place. So links wait in a queue, oldest first, until there are too
// many of them.
//
// The limit depends on the number of leaves and forks (fresh): a tree that was built in
// one go has no other nodes. While no page was removed to make room, there may be half
// as many links: when the queue is that long, most conversations in it are over. After
// a removal there may be 8 and a sixteenth as many, since memory is scarce. With 1,000
// leaves and forks the limit is 500 links first, and 8 + 62 = 70 later.
//
// Some joins lose something: if a request ended at the link after the last request that
// went on to its child, the child should be evicted before the link. Such a link goes
// into the queue stiff, and is joined only while there are more links than leaves and
// forks. The joined node then counts as used at the later of the two uses.
//
// A link with pins is not joined; its last Unpin queues it again.

// links counts the links of a tree and queues them for joining.
type links struct {
	count   int
	loose   []linkID // links to join first when there are too many
	stiff   []linkID // links taken from loose because joining them loses something
	spared  NodeID   // node that the running call will return and so must not join; or Root
	removed bool     // whether pages were ever removed to make room or because of their age
}

// linkID names a node. It is stale once the node's slot has another gen.
type linkID struct {
	id  NodeID
	gen uint32
}

// isLink reports whether a node has one child with which it could be joined: the child
// is no tail leaf, no private space begins at the node's end, and either both or
// neither of the two are distrusted.
func (s *slab) isLink(n *node) bool {
	if n.count != 1 || n.fork != nil || n.flags&(isAnchor|isRoot) != 0 {
		return false
	}
	child := &s.nodes[n.few[0].id]
	return !s.isTail(child) && (n.flags^child.flags)&distrusted == 0
}

// shape is the part of a node's state that is counted in Stats.Leaves and links.count.
// Code that changes a node's children calls shapeOf before the change and reshaped after
// it; reshaped updates the counts by the difference.
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

// loosen puts a link into the queue loose, unless it is in a queue already or
// Config.WholeLeaves forbids joins.
func (s *slab) loosen(id NodeID) {
	n := &s.nodes[id]
	if s.cfg.WholeLeaves || n.flags&queued != 0 {
		return
	}
	s.enqueue(&s.links.loose, linkID{id, n.gen})
}

// enqueue appends a link to a queue. Entries whose node is no longer a link stay in the
// queue until enqueue removes them all. It does so when the queue is longer than 64 + 4
// times the number of links: then three quarters of the entries or more are stale, so
// the cost is amortised O(1) per entry.
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

// popLink removes the oldest entry from a queue and returns it. The queue must not be
// empty.
func (s *slab) popLink(queue *[]linkID) linkID {
	l := (*queue)[0]
	*queue = (*queue)[1:]
	if n := &s.nodes[l.id]; n.gen == l.gen {
		n.flags &^= queued
	}
	return l
}

// fresh returns the number of leaves and forks: the nodes that a tree with the same
// content would have if it was built in one go.
func (s *slab) fresh() int { return s.counts.Nodes - s.links.count }

// limit returns the number of links that the tree may have before tidy joins some. The 8
// avoid that a small tree joins after each split. The limit never exceeds fresh, so that
// the tree has at most twice that many nodes.
func (s *slab) limit() int {
	if s.links.removed {
		return min(8+s.fresh()/16, s.fresh())
	}
	return s.fresh() / 2
}
