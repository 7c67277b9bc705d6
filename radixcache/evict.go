package radixcache

import "github.com/coppice-llm/coppice/kv"

// Evict removes unpinned leaves by the policy, parents becoming leaves in turn,
// until at least pages pages are freed or nothing is left that may go. Of the
// last one only as many pages go as are missing, from its end, unless
// [Config.WholeLeaves]. What was flushed goes first. No namespace is brought
// below its [Quota.MinPages], except by the last whole leaf. The freed pages are appended to freed.
//
// Cost: for each node removed amortised O(1) under LRU, else O(log n), and a
// search among its siblings; with quotas, also the number of namespaces that
// have one.
func (c *Cache) Evict(pages int, freed []kv.PageID) []kv.PageID {
	return c.evict(pages, nil, freed)
}

// EvictFor is Evict to make room for a namespace: it may also take from what
// that has within its own [Quota.MinPages].
func (c *Cache) EvictFor(ns kv.Namespace, pages int, freed []kv.PageID) []kv.PageID {
	return c.evict(pages, c.quotas[ns], freed)
}

func (c *Cache) evict(pages int, own *Quota, freed []kv.PageID) []kv.PageID {
	before := len(freed)
	for len(freed)-before < pages {
		id, reason := c.weakest(own)
		if id == Root {
			break
		}
		c.evicted(&c.nodes[id])
		freed = c.trim(id, c.allowance(id, own, pages-(len(freed)-before)), reason, freed)
	}
	if len(freed) > before {
		c.tidy()
		c.verify("Evict")
	}
	return freed
}

// weakest is the next victim of all orders, and why it is one.
func (c *Cache) weakest(own *Quota) (NodeID, Reason) {
	for _, o := range c.dead {
		if id := c.victim(o); id != Root {
			return id, ByFlush
		}
	}
	best := c.victim(c.common)
	for _, o := range c.tenants {
		if o.quota != own && o.pages <= o.quota.MinPages {
			continue
		}
		if id := c.victim(o); id != Root && (best == Root || c.weaker(id, best)) {
			best = id
		}
	}
	return best, ByCapacity
}

// weaker tells whether a goes before b, which stand in different orders.
func (c *Cache) weaker(a, b NodeID) bool {
	m, n := &c.nodes[a], &c.nodes[b]
	if c.cfg.Policy == LRU {
		return m.stamp < n.stamp
	}
	return heapKey{c.rank(m), m.stamp, a}.less(heapKey{c.rank(n), n.stamp, b})
}

// allowance is how many of the pages wanted a victim may give: not so many that
// its namespace has less than its due.
func (c *Cache) allowance(id NodeID, own *Quota, wanted int) int {
	o := c.nodes[id].space.order
	if o.dead || o.quota == nil || o.quota == own {
		return wanted
	}
	return min(wanted, o.pages-o.quota.MinPages)
}

// trim removes the last pages of an unpinned leaf, at least one and all if it
// has no more, and appends them to freed.
func (c *Cache) trim(id NodeID, pages int, reason Reason, freed []kv.PageID) []kv.PageID {
	n := &c.nodes[id]
	held := n.pages.Len()
	c.removed = true
	if pages >= held || c.cfg.WholeLeaves {
		c.noteRemoval(id, reason, n.tokens.Len(), held)
		return c.detach(id, freed)
	}
	keep := held - pages
	tokens := keep * c.cfg.PageTokens
	gone := n.tokens.Len() - tokens
	c.noteRemoval(id, reason, gone, pages)
	freed = n.pages.AppendTo(freed, keep)
	c.journalRemoved(n, tokens)
	c.hold(n, -gone, -pages)
	c.media.count(n.tokens.Slice()[tokens:], -1)
	n.tokens.Truncate(tokens)
	n.pages.Truncate(keep)
	c.version++
	c.rerank(id)
	return freed
}
