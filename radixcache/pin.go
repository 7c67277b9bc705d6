package radixcache

import "fmt"

// Pin protects the whole pages of a match from eviction, up to the root. Call it when a
// request begins that reuses them: Pin makes them the most recently used, and counts a
// lookup and a reuse. If the match ends inside a node, Pin splits that node, so that no
// more than the match is pinned. It returns the handle for [Cache.Extend] and
// [Cache.Unpin], or Root if m.Node is Root. Each Pin needs its own Unpin. SGLang calls
// this inc_lock_ref.
//
// It panics if the tree's shape changed since m was made. Cost: the part of the
// path that was not pinned.
func (c *Cache) Pin(m Match) NodeID {
	c.lookedUp(m.asked, m.Tokens)
	id := c.pin(m, "Pin")
	if id == Root {
		return Root
	}
	n := &c.nodes[id]
	n.reused(1)
	if s := c.turns.by; s != nil {
		s.returned(&n.use)
		c.turns.forked(c, id)
		c.turns.copied(c, m.Partial.Node, id)
	}
	c.touch(id)
	c.verify("Pin") // no tidy before: a join could remove the match's Partial.Node
	return id
}

// Keep is Pin without counting a lookup or a reuse, for prefixes that no request
// uses yet.
func (c *Cache) Keep(m Match) NodeID {
	id := c.pin(m, "Keep")
	if id != Root {
		c.touch(id)
		c.verify("Keep")
	}
	return id
}

// pin adds a handle to the node at which a match ends, after splitting that node if
// the match ends inside it. call is the caller's method, for the message of a panic.
func (c *Cache) pin(m Match, call string) NodeID {
	if m.Node == Root {
		return Root
	}
	c.checkMatch(m, call)
	id := m.Node
	if n := &c.nodes[id]; m.Tokens < n.end() {
		id = c.split(id, m.Tokens-int(n.start))
	}
	c.clock++
	c.pinPath(id)
	return id
}

// PinNode protects a whole node and the path to its root. It does not split the node or
// make it more recent. Use it for [Partial.Node] while its page is copied, and for the
// node that [Cache.Insert] returned, and end it by Unpin. For Root it does nothing; it
// panics if there is no such node. Cost: the part of the path that was not pinned.
func (c *Cache) PinNode(id NodeID) {
	if id == Root {
		return
	}
	c.live(id, "PinNode")
	c.pinPath(id)
	c.verify("PinNode")
}

// Unpin releases one pin of a handle. For Root it does nothing. It panics if there is no
// such node, and if the node has no pin of its own, even if nodes below it are pinned.
//
// Cost: the part of the path that is no longer pinned, and up to eight joins of nodes
// with their single children, each a copy of the tokens. There are more joins only when
// nodes with a single child outnumber all other nodes.
func (c *Cache) Unpin(id NodeID) {
	if id == Root {
		return
	}
	if n := c.live(id, "Unpin"); n.held == 0 {
		panic(fmt.Sprintf("radixcache: Unpin: node %d is not held (%d pins at or below it)", id, n.pins))
	}
	c.unpinPath(id)
	c.tidy()
	c.verify("Unpin")
}

// Prioritize raises the priority of a handle's node, and of all nodes above it, to at
// least priority, that of the request with the handle. The policy [Priority] evicts nodes
// of low priority first. Prioritize writes only to the node itself: nodes above inherit
// the priority when the nodes below them are removed. A node's priority starts at 0 and
// never falls. For Root Prioritize does nothing; it panics if there is no such node.
func (c *Cache) Prioritize(handle NodeID, priority int32) {
	if handle == Root {
		return
	}
	n := c.live(handle, "Prioritize")
	if priority <= n.prio {
		return
	}
	n.prio = priority
	c.rerank(handle)
	c.verify("Prioritize")
}
