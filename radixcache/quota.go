package radixcache

import (
	"fmt"

	"github.com/coppice-llm/coppice/kv"
)

// SetQuota gives a namespace a quota, or with the zero Quota takes it away. What
// it holds beyond MaxPages goes at its next Insert. Cost: what it holds, if it
// had none before or has none now.
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

// Stats is O(1).
func (c *Cache) Stats() Stats {
	s := c.counts
	s.EvictableTokens, s.EvictablePages = c.evictable.tokens, c.evictable.pages
	s.ProtectedTokens, s.ProtectedPages = c.protected.tokens, c.protected.pages
	s.Tokens = s.EvictableTokens + s.ProtectedTokens
	s.Pages = s.EvictablePages + s.ProtectedPages
	s.Namespaces = c.open
	return s
}

// Usage is that of a namespace on its own: not what it has behind public
// prefixes, for which see [Cache.PrivateUsage]. O(1).
func (c *Cache) Usage(ns kv.Namespace) Usage { return c.alive[spaceKey{ns, Root}].usage() }

// PrivateUsage is that of all spaces of a namespace, behind public prefixes and
// on its own. Cost: the number of spaces in the tree.
func (c *Cache) PrivateUsage(ns kv.Namespace) Usage {
	var sum Usage
	for key, sp := range c.alive { // any order: only adds
		if key.ns != ns {
			continue
		}
		u := sp.usage()
		sum.EvictableTokens += u.EvictableTokens
		sum.ProtectedTokens += u.ProtectedTokens
		sum.EvictablePages += u.EvictablePages
		sum.ProtectedPages += u.ProtectedPages
		sum.HitTokens += u.HitTokens
	}
	return sum
}
