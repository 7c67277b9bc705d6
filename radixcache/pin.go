package radixcache

import "fmt"

// Pin protects the whole pages of a match from eviction, up to the root, and
// makes them the most recently used. Where the match ends inside a node it
// splits that node, so that no more than the match is pinned. The result is
// the handle for [Cache.Unpin], Root if m.Node is. Pins nest: as many Unpins
// release them.
//
// It panics if the tree's shape changed since m was made. Cost: the path.
func (c *Cache) Pin(m Match) NodeID {
	if m.Node == Root {
		return Root
	}
	if m.version != c.version {
		panic(fmt.Sprintf("radixcache: Pin: match of %d tokens at node %d is stale: version %d, now %d", m.Tokens, m.Node, m.version, c.version))
	}
	id := m.Node
	if m.offset < len(c.nodes[id].tokens) {
		id = c.split(id, m.offset)
	}
	c.clock++
	c.refresh(id)
	c.pinPath(id)
	c.verify("Pin")
	return id
}

// PinNode protects a whole node and the path to its root, without a split and
// without making it more recent: for [Partial.Node] while its page is copied,
// and for the node that [Cache.Insert] returned. Root does nothing; an unknown
// node panics. Cost: the path.
func (c *Cache) PinNode(id NodeID) {
	if id == Root {
		return
	}
	c.live(id, "PinNode")
	c.pinPath(id)
	c.verify("PinNode")
}

// Unpin releases one pin of a handle. Root does nothing; an unknown node, or
// one without a pin of its own, panics. Cost: the path.
func (c *Cache) Unpin(id NodeID) {
	if id == Root {
		return
	}
	n := c.live(id, "Unpin")
	if n.held == 0 {
		panic(fmt.Sprintf("radixcache: Unpin: node %d is not held (%d pins below it)", id, n.pins))
	}
	n.held--
	for at := id; !c.isSpaceRoot(at); at = c.nodes[at].parent {
		n := &c.nodes[at]
		if n.pins--; n.pins == 0 {
			c.protected.add(n, -1)
			c.evictable.add(n, 1)
			if n.queue == parked {
				c.heapPush(at)
			}
		}
	}
	c.verify("Unpin")
}

func (c *Cache) pinPath(id NodeID) {
	c.nodes[id].held++
	for at := id; !c.isSpaceRoot(at); at = c.nodes[at].parent {
		n := &c.nodes[at]
		if n.pins++; n.pins == 1 {
			c.evictable.add(n, -1)
			c.protected.add(n, 1)
			if n.queue >= 0 {
				c.heapRemove(at)
				n.queue = parked
			}
		}
	}
}
