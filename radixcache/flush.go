package radixcache

import "github.com/coppice-llm/coppice/kv"

// Flush makes the whole tree unreachable at once, for example when the model gets new
// weights: no later match finds the KV that the tree holds now. With Config.Events, one
// Cleared event announces it. The flushed tree keeps its pages until Evict removes them:
// Evict takes its unpinned leaves first, and pinned leaves after their last Unpin. Handles
// stay valid, and Extend with such a handle adds to the flushed tree. Flush unpins all
// pinned prefixes, and forgets the removals that Explain remembers and the requests that
// HitRates counts.
//
// SGLang's flush_cache needs an idle server; here requests may go on. Cost: the number
// of namespaces and of pinned prefixes, and joins as in Unpin.
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
	if c.curve.live != nil {
		c.curve.live.Reset()
	}
	pins := c.prefixes.pins
	c.prefixes = prefixPins{}
	for _, p := range pins {
		c.unpinPath(p.node)
	}
	c.tidy()
	if c.cfg.Events {
		c.journal.add(kv.Event{Kind: kv.Cleared})
	}
	c.verify("Flush")
}

// Epoch returns the number of flushes. A handle from before the latest flush is in a
// flushed tree.
func (c *Cache) Epoch() uint64 { return c.epoch }
