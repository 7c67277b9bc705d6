package radixcache

import (
	"fmt"

	"github.com/coppice-llm/coppice/kv"
)

// SetQuota sets a namespace's quota; the zero Quota removes it. SetQuota frees no pages:
// KeepQuotas, or the namespace's next Insert or Extend, frees those that it holds beyond
// MaxPages. It returns an error for negative bounds and for MinPages above MaxPages. Cost:
// the number of the namespace's nodes if it had no quota before or has none now, else O(1).
func (c *Cache) SetQuota(ns kv.Namespace, q Quota) error {
	if q.MinPages < 0 || q.MaxPages < 0 || q.MaxPages > 0 && q.MinPages > q.MaxPages {
		return fmt.Errorf("radixcache: quota of %+v: MinPages %d, MaxPages %d, want 0 <= MinPages <= MaxPages, or MaxPages 0", ns, q.MinPages, q.MaxPages)
	}
	old := c.quotas[ns]
	switch {
	case q == Quota{} && old == nil:
		return nil
	case q == Quota{}:
		delete(c.quotas, ns)
		c.moveOrder(ns)
	case old == nil:
		c.quotas[ns] = &q
		c.moveOrder(ns)
	default:
		*old = q
	}
	c.verify("SetQuota")
	return nil
}

// KeepQuotas frees unpinned pages of the namespaces that hold more than their MaxPages, and
// returns freed with these pages appended. Insert and Extend keep the quota of their own
// namespace; what a pin protected then may be removed after its Unpin, and pages beyond a
// lower quota after SetQuota. Cost: the number of namespaces with a quota that hold
// something, and removals as in Evict.
func (c *Cache) KeepQuotas(freed []kv.PageID) []kv.PageID {
	before := len(freed)
	for i := 0; i < len(c.tenants); {
		o := c.tenants[i]
		freed = c.trimToQuota(o, freed)
		if i < len(c.tenants) && c.tenants[i] == o { // else it holds nothing more and is gone
			i++
		}
	}
	if len(freed) > before {
		c.tidy()
	}
	c.verify("KeepQuotas")
	return freed
}

// Stats returns the counters, and the number of nodes, tokens and pages that the tree holds
// now. Cost: O(1).
func (c *Cache) Stats() Stats {
	s := c.counts
	s.EvictableTokens, s.EvictablePages = c.evictable.tokens, c.evictable.pages
	s.ProtectedTokens, s.ProtectedPages = c.protected.tokens, c.protected.pages
	s.Tokens = s.EvictableTokens + s.ProtectedTokens
	s.Pages = s.EvictablePages + s.ProtectedPages
	s.Namespaces = c.open
	return s
}
