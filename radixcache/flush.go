package radixcache

import "github.com/coppice-llm/coppice/kv"

// Flush makes the whole tree unreachable at once, as after new weights: no later match
// finds the KV held now, and one Cleared event announces it. The old tree keeps its
// pages until they are evicted: Evict takes its unpinned leaves first, and pinned ones
// after their last Unpin. Handles stay valid, and Extend adds to the old tree through
// them. Pinned prefixes are unpinned, and Explain's memory and the curve start over.
//
// SGLang's flush_cache needs an idle server; here requests may go on. Cost: the
// number of namespaces and of pinned prefixes, and joins, see Unpin.
func (c *Cache) Flush() {
	c.epoch++
	c.version++
	for _, sp := range c.alive { // in any order, as each is only marked
		sp.dead = true
	}
	clear(c.alive)
	c.latest = nil
	for _, o := range append(c.tenants, c.common) {
		if o.dead = true; o.spaces > 0 {
			c.dead = append(c.dead, o)
		} else if o.edge != Root {
			c.freeNode(o.edge)
		}
	}
	c.tenants = nil
	c.common = c.newOrder(c.newNode(&node{}))
	c.ghosts.reset()
	c.curve.reset()
	c.prefixes.dead = append(c.prefixes.dead, c.prefixes.pins...)
	c.prefixes.pins, c.prefixes.tokens = c.prefixes.pins[:0], 0
	for _, p := range c.prefixes.dead {
		c.unpinPath(p.node)
	}
	c.prefixes.dead = c.prefixes.dead[:0]
	c.tidy()
	if c.cfg.Events {
		c.journal.add(kv.Event{Kind: kv.Cleared})
	}
	c.verify("Flush")
}

// Epoch returns the number of flushes. A handle of an earlier epoch is in a flushed tree.
func (c *Cache) Epoch() uint64 { return c.epoch }
