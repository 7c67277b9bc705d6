package radixcache

import (
	"slices"

	"github.com/coppice-llm/coppice/kv"
)

// evict removes leaves until it has freed the given number of pages or no leaf is left that
// may be evicted, and returns freed with the freed pages appended. If all is true, it ignores the
// MinPages of namespaces.
func (t *tree) evict(pages int, all bool, freed []kv.PageID) []kv.PageID {
	before := len(freed)
	t.settle()
	for len(freed)-before < pages {
		id, reason := t.weakest(all)
		if id == Root {
			break
		}
		if t.ranked {
			t.by.evicted(&t.nodes[id].use, t.nodes[id].end(), t.clock)
		}
		freed = t.trim(id, t.allowance(id, all, pages-(len(freed)-before)), reason, freed)
	}
	if len(freed) > before {
		t.tidy()
	}
	return freed
}

// weakest returns the next leaf to evict among all orders, or Root if there is none, and the
// reason for the eviction. Leaves of flushed trees come first, as no match finds them.
// weakest skips a namespace at or below its MinPages, unless all is true.
func (t *tree) weakest(all bool) (NodeID, Reason) {
	for _, o := range t.dead {
		if id := t.victim(o); id != Root {
			return id, ByFlush
		}
	}
	best := t.victim(t.common)
	for _, o := range t.tenants {
		if !all && o.pages <= o.quota.MinPages {
			continue
		}
		if id := t.victim(o); id != Root && (best == Root || t.weaker(id, best)) {
			best = id
		}
	}
	return best, ByCapacity
}

// allowance returns how many of the wanted pages leaf id may lose if its namespace must keep
// its MinPages; all of them if all is true. Example: of a
// namespace with 10 pages and MinPages 8, a leaf of 5 pages may lose 2.
func (t *tree) allowance(id NodeID, all bool, wanted int) int {
	o := t.nodes[id].space.order
	if all || o.dead || o.quota == nil {
		return wanted
	}
	return min(wanted, o.pages-o.quota.MinPages)
}

// keepQuota frees the pages that the key's own namespace, and that of its public tokens,
// hold beyond their MaxPages, and returns freed with them appended. It spares the path to
// node at, which the running call is about to return.
func (t *tree) keepQuota(r *route, at NodeID, freed []kv.PageID) []kv.PageID {
	if len(t.quotas) == 0 || at != Root && t.nodes[at].space.dead {
		return freed
	}
	freed = t.keepQuotaOf(*r.ns, at, freed)
	if r.outer() != *r.ns {
		freed = t.keepQuotaOf(r.outer(), at, freed)
	}
	return freed
}

// keepQuotaOf is keepQuota for one namespace. It pins node at while it evicts.
func (t *tree) keepQuotaOf(ns kv.Namespace, at NodeID, freed []kv.PageID) []kv.PageID {
	q := t.quotas[ns]
	i := slices.IndexFunc(t.tenants, func(o *order) bool { return o.quota == q })
	if i < 0 || q.MaxPages == 0 || t.tenants[i].pages <= q.MaxPages {
		return freed
	}
	if at != Root {
		t.pinPath(at)
	}
	freed = t.trimToQuota(t.tenants[i], freed)
	if at != Root {
		t.unpinPath(at)
	}
	return freed
}

// trimToQuota removes unpinned leaves of an order with a quota until it holds at most
// MaxPages, and returns freed with their pages appended.
func (t *tree) trimToQuota(o *order, freed []kv.PageID) []kv.PageID {
	q := o.quota
	t.settle()
	for q.MaxPages > 0 && o.pages > q.MaxPages {
		id := t.victim(o)
		if id == Root {
			break
		}
		t.by.evicted(&t.nodes[id].use, t.nodes[id].end(), t.clock)
		freed = t.trim(id, o.pages-q.MaxPages, ByQuota, freed)
	}
	return freed
}

// expireIn removes the unpinned leaves of an order whose stamp is limit or less, oldest
// first, and returns freed with their pages appended. It also removes parents that become
// such leaves.
func (t *tree) expireIn(o *order, limit uint64, freed []kv.PageID) []kv.PageID {
	for {
		id := t.oldest(o)
		if id == Root || t.nodes[id].stamp > limit {
			return freed
		}
		t.links.removed = true
		t.noteRemoval(id, ByAge, t.nodes[id].tokens.Len(), t.nodes[id].pages.Len())
		freed = t.detach(id, freed)
	}
}
