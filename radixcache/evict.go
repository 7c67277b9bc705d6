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
	freed = c.evict(pages, nil, freed)
	c.verify("Evict")
	return freed
}

// EvictAny is Evict that may bring namespaces below their [Quota.MinPages], for what
// can't run otherwise.
func (c *Cache) EvictAny(pages int, freed []kv.PageID) []kv.PageID {
	freed = c.evict(pages, everyQuota, freed)
	c.verify("EvictAny")
	return freed
}

// EvictFor is Evict to make room for a namespace: it may also take from what
// that has within its own [Quota.MinPages].
func (c *Cache) EvictFor(ns kv.Namespace, pages int, freed []kv.PageID) []kv.PageID {
	freed = c.evict(pages, c.quotas[ns], freed)
	c.verify("EvictFor")
	return freed
}
