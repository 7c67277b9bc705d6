package radixcache

// States of a node in the order of eviction, as node.queue; from 0 on it is an
// index in Cache.heap.
const (
	inLine  = -1 // in Cache.line
	parked  = -2 // pinned, and older than all in the line
	nowhere = -3 // the root of a namespace, or not attached yet
)

// Eviction takes the least recent unpinned leaf without searching for it. The
// line holds the nodes, pinned or not, leaves or not, by rising stamp, and of
// those with one stamp (they are one path) the deeper first. A walk moves its
// path to the end; pins and new children change nothing. As no stamp is above
// its parent's, the first unpinned node of the line is always a leaf.
//
// Pinned nodes that Evict meets at the front leave the line, each paid for by
// the walk that had put it there. They are parked, older than all in the line;
// those of them that are unpinned before they are used again wait in the heap,
// from which Evict takes first.

// lineLink joins a node to its neighbours in the line; Root is both ends.
type lineLink struct{ prev, next NodeID }

// linePush puts a node at the end.
func (c *Cache) linePush(id NodeID) { c.lineInsert(c.line[Root].prev, id) }

// lineInsert puts a node right after another, or first after Root.
func (c *Cache) lineInsert(after, id NodeID) {
	next := c.line[after].next
	c.line[id] = lineLink{after, next}
	c.line[after].next, c.line[next].prev = id, id
	c.nodes[id].queue = inLine
}

func (c *Cache) lineRemove(id NodeID) {
	l := c.line[id]
	c.line[l.prev].next, c.line[l.next].prev = l.next, l.prev
	c.nodes[id].queue = nowhere
}

// leaveOrder takes a node out of the order of eviction.
func (c *Cache) leaveOrder(id NodeID) {
	switch at := c.nodes[id].queue; {
	case at >= 0:
		c.heapRemove(id)
	case at == inLine:
		c.lineRemove(id)
	}
	c.nodes[id].queue = nowhere
}

// refresh makes a node and the path to its root as recent as the running walk.
func (c *Cache) refresh(id NodeID) {
	for at := id; !c.isSpaceRoot(at); at = c.nodes[at].parent {
		c.touch(at)
	}
}

// touch makes one node as recent as the running walk; deeper ones first.
func (c *Cache) touch(id NodeID) {
	c.nodes[id].stamp = c.clock
	c.leaveOrder(id)
	c.linePush(id)
}

// joinUpper gives the upper half of a split its turn: right after the lower.
func (c *Cache) joinUpper(upper, lower NodeID) {
	switch at := c.nodes[lower].queue; {
	case at == inLine:
		c.lineInsert(lower, upper)
	case at == parked:
		c.nodes[upper].queue = parked
	default:
		c.heap[at].start = c.nodes[lower].start // deeper than it was
		c.heapUp(int(at))
		c.heapPush(upper)
	}
}

// victim is the next leaf to evict, Root if there is none.
func (c *Cache) victim() NodeID {
	if len(c.heap) > 0 {
		return c.heap[0].id
	}
	for {
		id := c.line[Root].next
		if id == Root || c.nodes[id].pins == 0 {
			return id
		}
		c.lineRemove(id)
		c.nodes[id].queue = parked
	}
}
