package radixcache

// order is the order in which the unpinned leaves of some spaces are evicted:
// of all that have no quota of their own, or of one namespace that has.
//
// Under LRU nothing is searched. The line holds leaves by rising stamp. A walk
// puts the leaf at which it ends at the line's back. A leaf that is pinned, or
// grows children, stays where it is until it comes to the front, and leaves the
// line then. One that comes in with a stamp of some time ago, as it was pinned
// meanwhile or has lost its last child, goes to the front if it is older than
// all in the line, as is the parent of a leaf that was just evicted, or else to
// the late heap. So each eviction takes the older of two.
//
// Under the other policies there is a heap by rank, and the line is kept only
// for the sake of a TTL.
type order struct {
	quota  *Quota // nil without
	edge   NodeID // both ends of the line: a slot of the slab for nothing else
	late   heap   // leaves by age that are not in the line
	ranked heap   // leaves by rank, unless the policy is LRU
	pages  int    // held by all its nodes, pinned or not
	spaces int    // that use it
	dead   bool   // flushed
}

// lineLink joins a node to its neighbours in the line.
type lineLink struct{ prev, next NodeID }

func (c *Cache) newOrder(edge NodeID) *order {
	c.line[edge] = lineLink{edge, edge}
	return &order{edge: edge, late: heap{kind: byAge}, ranked: heap{kind: byRank}}
}

// byLine tells whether the line is in use.
func (c *Cache) byLine() bool { return c.cfg.Policy == LRU || c.cfg.TTL > 0 }

// lineInsert puts a node right after another, or first after the edge.
func (c *Cache) lineInsert(after, id NodeID) {
	next := c.line[after].next
	c.line[id] = lineLink{after, next}
	c.line[after].next, c.line[next].prev = id, id
	c.nodes[id].flags |= inLine
}

func (c *Cache) lineRemove(id NodeID) {
	l := c.line[id]
	c.line[l.prev].next, c.line[l.next].prev = l.next, l.prev
	c.nodes[id].flags &^= inLine
}

// enlist puts an unpinned leaf where its stamp and its rank belong.
func (c *Cache) enlist(id NodeID) {
	n := &c.nodes[id]
	o := n.space.order
	if c.cfg.Policy != LRU {
		c.heapPut(&o.ranked, heapKey{c.rank(n), n.stamp, id})
	}
	if !c.byLine() || n.flags&inLine != 0 || c.places[byAge][id] != nowhere {
		return
	}
	switch ends := c.line[o.edge]; {
	case ends.prev == o.edge || c.nodes[ends.prev].stamp <= n.stamp:
		c.lineInsert(ends.prev, id)
	case n.stamp <= c.nodes[ends.next].stamp:
		c.lineInsert(o.edge, id)
	default:
		c.heapPut(&o.late, heapKey{n.stamp, n.stamp, id})
	}
}

// unheap takes a node that is no leaf any more, or is pinned, out of the heaps.
// In the line it may stay.
func (c *Cache) unheap(id NodeID) {
	o := c.nodes[id].space.order
	c.heapTake(&o.late, id)
	if c.cfg.Policy != LRU {
		c.heapTake(&o.ranked, id)
	}
}

// delist takes a node out of its order.
func (c *Cache) delist(id NodeID) {
	c.unheap(id)
	if c.nodes[id].flags&inLine != 0 {
		c.lineRemove(id)
	}
}

// touch makes a node, or that at which a space begins, and with it the path to
// its root, as recent as the running walk.
func (c *Cache) touch(id NodeID) {
	if id = c.outer(id); id == Root {
		return
	}
	n := &c.nodes[id]
	c.delist(id)
	n.stamp = c.clock
	c.remark(n)
	if n.pins == 0 && n.isLeaf() {
		c.enlist(id)
	}
}

// absorb tells a node what its child, which is being removed, knew of the walks
// through both.
func (c *Cache) absorb(parent, child NodeID) {
	p, n := &c.nodes[parent], &c.nodes[child]
	if n.stamp > p.stamp {
		if p.flags&inLine != 0 {
			c.lineRemove(parent) // it stood there by its own
		}
		p.stamp = n.stamp
	}
	p.reused(n.hits)
	p.prio = max(p.prio, n.prio)
	c.absorbMark(p, n)
}

// orphaned takes up a node that may have lost its last child.
func (c *Cache) orphaned(id NodeID) {
	n := &c.nodes[id]
	switch {
	case !n.isLeaf():
	case n.flags&isRoot != 0:
		c.close(n.space)
	case n.pins == 0:
		c.enlist(id)
	}
}

// oldest is the least recent unpinned leaf, Root if there is none.
func (c *Cache) oldest(o *order) NodeID {
	first := Root
	for first == Root {
		id := c.line[o.edge].next
		if id == o.edge {
			break
		}
		if n := &c.nodes[id]; n.pins == 0 && n.isLeaf() {
			first = id
		} else {
			c.lineRemove(id)
		}
	}
	if len(o.late.keys) > 0 && (first == Root || o.late.keys[0].key < c.nodes[first].stamp) {
		return o.late.keys[0].id
	}
	return first
}

// victim is the next leaf to evict, Root if there is none.
func (c *Cache) victim(o *order) NodeID {
	if c.cfg.Policy == LRU {
		return c.oldest(o)
	}
	if len(o.ranked.keys) == 0 {
		return Root
	}
	return o.ranked.keys[0].id
}
