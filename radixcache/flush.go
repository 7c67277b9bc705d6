package radixcache

import "github.com/coppice-llm/coppice/kv"

// Flush forgets everything at once, as after new weights: no later match finds
// what is held now, and one Cleared event says so. The old tree keeps its pages
// until they are taken out: Evict takes them first, and pinned ones when their
// pins are gone. Handles stay valid; what Extend adds to one belongs to the old
// tree. Cost: the number of namespaces and of pinned prefixes, and joins, see
// Unpin.
func (c *Cache) Flush() {
	c.epoch++
	c.version++
	for _, sp := range c.alive { // any order: each is only marked
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

// Epoch is how many flushes there were.
func (c *Cache) Epoch() uint64 { return c.epoch }
