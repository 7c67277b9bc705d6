package radixcache

import "github.com/coppice-llm/coppice/kv"

// Evict removes unpinned leaves in the order of the policy until at least this many
// pages are freed or nothing is left to evict; parents become leaves in turn. Of the
// last leaf it removes only the pages that are missing, from the end, unless
// [Config.WholeLeaves]: a 10,000-token leaf then loses one page when one is missing.
// Flushed trees go first. No namespace falls below its [Quota.MinPages], except by
// the last whole leaf. The freed pages are appended to freed.
//
// Cost: for each node removed amortised O(1) under LRU, else O(log n), and a
// search among its siblings; with quotas, also the number of namespaces that
// have one.
func (c *Cache) Evict(pages int, freed []kv.PageID) []kv.PageID {
	freed = c.evict(pages, nil, freed)
	c.verify("Evict")
	return freed
}

// EvictAny is Evict that may bring namespaces below their [Quota.MinPages], for
// requests that could not run otherwise.
func (c *Cache) EvictAny(pages int, freed []kv.PageID) []kv.PageID {
	freed = c.evict(pages, everyQuota, freed)
	c.verify("EvictAny")
	return freed
}

// EvictFor is Evict to make room for a namespace, which may also lose pages within
// its own [Quota.MinPages]: the bound protects it from others, not from itself.
func (c *Cache) EvictFor(ns kv.Namespace, pages int, freed []kv.PageID) []kv.PageID {
	freed = c.evict(pages, c.quotas[ns], freed)
	c.verify("EvictFor")
	return freed
}
