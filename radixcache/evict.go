package radixcache

import "github.com/coppice-llm/coppice/kv"

// Evict removes unpinned leaves in the order of the policy until it has freed the given
// number of pages or nothing is left to evict. A parent whose last child was removed is
// a leaf then. Evict returns freed with the freed pages appended. From the last leaf it
// removes only as many pages as are still missing, from the leaf's end: a 10,000-token
// leaf loses one page if one is missing. With [Config.WholeLeaves] it always removes
// whole leaves, so it may free more. It removes the leaves of flushed trees first. It
// leaves every namespace its [Quota.MinPages], but with WholeLeaves the last leaf that
// it removes from a namespace may leave less.
//
// Cost: for each node removed amortised O(1) under LRU, else O(log n), and a
// search among its siblings; with quotas, also the number of namespaces that
// have one.
func (c *Cache) Evict(pages int, freed []kv.PageID) []kv.PageID {
	freed = c.evict(pages, false, freed)
	c.verify("Evict")
	return freed
}

// EvictAny is Evict without regard to [Quota.MinPages], for requests that could not run
// otherwise.
func (c *Cache) EvictAny(pages int, freed []kv.PageID) []kv.PageID {
	freed = c.evict(pages, true, freed)
	c.verify("EvictAny")
	return freed
}
