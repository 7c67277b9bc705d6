package radixcache

import "slices"

// A node with a single child, a link, and that child could be one run: a split
// whose other half has gone, the turns of a conversation. Links are joined
// again, but not at once: each join copies both runs, and the next request may
// split them at the same place. So links wait in a queue, oldest first, until
// there are too many. While nothing was ever removed that is when they are more
// than half as many as the leaves and forks, of which alone a fresh tree would
// consist; by then most conversations among them are over. Once there is not
// room for all, it is a sixteenth of that, and few are joined at a time.
//
// Some joins would lose something: if requests ended at the link after the last
// that went on to its child, the two are to be evicted at different times. Such
// a stiff link is joined only when the nodes would else be more than twice those
// of a fresh tree; then both halves count as used when the later one was.
//
// A link with pins waits for these: it is queued again by its last Unpin.

// links counts the nodes with a single child and queues those to be joined.
type links struct {
	count   int
	loose   []linkID // to be joined when there are too many
	stiff   []linkID // of those, the ones whose joining loses something
	spared  NodeID   // a link that must not be joined yet, or Root
	removed bool     // something was, to make room or as it was old
}

// linkID names a link while its slot is not used anew.
type linkID struct {
	id  NodeID
	gen uint32
}

// isLink reports whether a node and its one child could be one run, by their shape and by
// whether both or neither is distrusted.
func (s *slab) isLink(n *node) bool {
	if n.count != 1 || n.fork != nil || n.flags&(hasDoors|isRoot) != 0 {
		return false
	}
	child := &s.nodes[n.few[0].id]
	return !s.isTail(child) && (n.flags^child.flags)&distrusted == 0
}

// shape is what of a node is counted. Every change of a node's children lies
// between a shapeOf and a reshaped.
type shape struct{ leaf, link bool }

func (s *slab) shapeOf(id NodeID) shape {
	n := &s.nodes[id]
	if n.flags&isRoot != 0 {
		return shape{}
	}
	return shape{n.isLeaf(), s.isLink(n)}
}

func (s *slab) reshaped(id NodeID, was shape) {
	is := s.shapeOf(id)
	s.counts.Leaves += count(is.leaf) - count(was.leaf)
	s.links.count += count(is.link) - count(was.link)
	if is.link && !was.link {
		s.loosen(id)
	}
}

// loosen queues a link that is not queued yet.
func (s *slab) loosen(id NodeID) {
	n := &s.nodes[id]
	if s.cfg.WholeLeaves || n.flags&queued != 0 {
		return
	}
	s.enqueue(&s.links.loose, linkID{id, n.gen})
}

// enqueue puts a link at the end of a queue, and sweeps that when most of it is
// no link any more.
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

// popLink takes the oldest out of a queue.
func (s *slab) popLink(queue *[]linkID) linkID {
	l := (*queue)[0]
	*queue = (*queue)[1:]
	if n := &s.nodes[l.id]; n.gen == l.gen {
		n.flags &^= queued
	}
	return l
}

// fresh is how many nodes a tree of the same content would have, had it been
// built in one go.
func (s *slab) fresh() int { return s.counts.Nodes - s.links.count }

// limit is how many links there may be.
func (s *slab) limit() int {
	if s.links.removed {
		return min(8+s.fresh()/16, s.fresh())
	}
	return s.fresh() / 2
}
