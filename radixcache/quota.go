package radixcache

import (
	"fmt"
	"slices"

	"github.com/coppice-llm/coppice/kv"
)

// Quota bounds what one namespace holds, behind public prefixes or on its own;
// a public prefix itself belongs to the namespace without salt. The zero Quota
// is none.
type Quota struct {
	MinPages int // Evict on behalf of others leaves the namespace so much
	MaxPages int // Insert and Extend free what is unpinned beyond; 0 is no limit
}

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

// orderOf is the order for the nodes of a namespace that is alive.
func (c *Cache) orderOf(ns kv.Namespace) *order {
	q := c.quotas[ns]
	if q == nil {
		return c.common
	}
	for _, o := range c.tenants {
		if o.quota == q {
			return o
		}
	}
	o := c.newOrder(c.newNode(node{}))
	o.quota = q
	c.tenants = append(c.tenants, o)
	return o
}

// moveOrder puts the spaces of a namespace into the order that its quota asks for.
func (c *Cache) moveOrder(ns kv.Namespace) {
	to := c.orderOf(ns)
	var spaces []*space
	for key, sp := range c.spaces {
		if key.ns == ns {
			spaces = append(spaces, sp)
		}
	}
	slices.SortFunc(spaces, func(a, b *space) int { return int(a.root) - int(b.root) })
	var leaves []NodeID
	for _, sp := range spaces {
		from := sp.order
		c.eachNode(sp.root, func(id NodeID) {
			n := &c.nodes[id]
			c.delist(id)
			from.pages -= n.pages.Len()
			to.pages += n.pages.Len()
			if n.pins == 0 && n.isLeaf() {
				leaves = append(leaves, id)
			}
		})
		sp.order = to
		to.spaces++
		if from.spaces--; from.spaces == 0 {
			c.dropOrder(from)
		}
	}
	slices.SortFunc(leaves, func(a, b NodeID) int {
		return compareUint(c.nodes[a].stamp, c.nodes[b].stamp)
	})
	for _, id := range leaves {
		c.enlist(id)
	}
	if to.spaces == 0 {
		c.dropOrder(to)
	}
}

func compareUint(a, b uint64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// eachNode goes through the nodes of one space below a node.
func (c *Cache) eachNode(id NodeID, visit func(NodeID)) {
	for kid := range c.children(id) {
		visit(kid)
		c.eachNode(kid, visit)
	}
}

// dropOrder forgets an order that no space uses any more.
func (c *Cache) dropOrder(o *order) {
	if o == c.common {
		return
	}
	if o.dead {
		c.dead = slices.DeleteFunc(c.dead, func(other *order) bool { return other == o })
	} else {
		c.tenants = slices.DeleteFunc(c.tenants, func(other *order) bool { return other == o })
	}
	if o.edge != Root {
		c.freeNode(o.edge)
	}
}

// keepQuota frees what the namespaces of a key hold beyond their quotas, sparing
// the node that a call is about to return.
func (c *Cache) keepQuota(r *route, at NodeID, freed []kv.PageID) []kv.PageID {
	if len(c.quotas) == 0 || at != Root && c.nodes[at].space.dead {
		return freed
	}
	freed = c.keepQuotaOf(r.ns, at, freed)
	if r.outer != r.ns {
		freed = c.keepQuotaOf(r.outer, at, freed)
	}
	return freed
}

func (c *Cache) keepQuotaOf(ns kv.Namespace, at NodeID, freed []kv.PageID) []kv.PageID {
	q := c.quotas[ns]
	i := slices.IndexFunc(c.tenants, func(o *order) bool { return o.quota == q })
	if i < 0 || q.MaxPages == 0 || c.tenants[i].pages <= q.MaxPages {
		return freed
	}
	o := c.tenants[i]
	if at != Root {
		c.pinPath(at)
	}
	for o.pages > q.MaxPages {
		id := c.victim(o)
		if id == Root {
			break
		}
		c.evicted(&c.nodes[id])
		freed = c.trim(id, o.pages-q.MaxPages, ByQuota, freed)
	}
	if at != Root {
		c.unpinPath(at)
	}
	return freed
}
