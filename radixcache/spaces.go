package radixcache

import (
	"cmp"
	"slices"
	"strings"

	"github.com/coppice-llm/coppice/kv"
)

// spaces is the layer above eviction that knows namespaces: at which nodes their spaces
// begin, and how many pages each namespace may hold.
type spaces struct {
	eviction
	alive   map[spaceKey]*space     // spaces that were not flushed; each holds something
	latest  *space                  // space without anchor that enter found last, or nil
	anchors map[NodeID]int32        // number of private spaces that begin at a node
	quotas  map[kv.Namespace]*Quota // quotas as set by SetQuota, also of namespaces that hold nothing
	open    int                     // number of spaces, dead ones included
}

func newSpaces(cfg Config) spaces {
	return spaces{eviction: newEviction(cfg), alive: map[spaceKey]*space{}, anchors: map[NodeID]int32{}, quotas: map[kv.Namespace]*Quota{}}
}

// enter returns the root of a namespace's space that begins at anchor, and true, or false
// if there is no such space. It tries the latest space first, because most calls in a row
// are for the same namespace, and comparing three strings is faster than hashing them.
func (ss *spaces) enter(ns kv.Namespace, anchor NodeID) (NodeID, bool) {
	if sp := ss.latest; sp != nil && anchor == Root && sp.ns == ns {
		return sp.root, true
	}
	sp := ss.alive[spaceKey{ns, anchor}]
	if sp == nil {
		return Root, false
	}
	if anchor == Root {
		ss.latest = sp
	}
	return sp.root, true
}

// openSpace returns the root of a namespace's space that begins at anchor, and makes the
// space if needed. If the anchor was flushed, the new space counts as flushed too, and
// enter never finds it: Extend with a handle from before the flush adds to the flushed
// tree only.
func (ss *spaces) openSpace(ns kv.Namespace, anchor NodeID) NodeID {
	if root, ok := ss.enter(ns, anchor); ok {
		return root
	}
	// The strings may be parts of a request's whole text, which would stay in memory.
	ns = kv.Namespace{Model: strings.Clone(ns.Model), LoRA: strings.Clone(ns.LoRA), Salt: strings.Clone(ns.Salt)}
	sp := &space{ns: ns, anchor: anchor}
	if ss.cfg.Events {
		sp.hasher = *kv.NewHasher(ns, ss.cfg.BlockTokens)
	}
	n := node{space: sp, parent: anchor, flags: isRoot}
	if anchor != Root {
		public := &ss.nodes[anchor]
		n.start, sp.dead, sp.order = int32(public.end()), public.space.dead, public.space.order
	}
	if !sp.dead {
		sp.order = ss.orderOf(ns)
	}
	if anchor != Root {
		was := ss.shapeOf(anchor)
		ss.delist(anchor)
		ss.nodes[anchor].flags |= isAnchor // orderOf may have moved the slab
		ss.anchors[anchor]++
		ss.reshaped(anchor, was)
	}
	sp.root = ss.newNode(&n)
	if !sp.dead {
		ss.alive[spaceKey{ns, anchor}] = sp
	}
	sp.order.spaces++
	ss.open++
	return sp.root
}

// close removes a space whose root has no children left. If it has an anchor, the anchor
// absorbs the root's use and may become a leaf.
func (ss *spaces) close(sp *space) {
	if !sp.dead {
		delete(ss.alive, spaceKey{sp.ns, sp.anchor})
	}
	if ss.latest == sp {
		ss.latest = nil
	}
	ss.open--
	if anchor := sp.anchor; anchor != Root {
		was := ss.shapeOf(anchor)
		if ss.anchors[anchor]--; ss.anchors[anchor] == 0 {
			delete(ss.anchors, anchor)
			ss.nodes[anchor].flags &^= isAnchor
		}
		ss.absorb(anchor, sp.root)
		ss.freeNode(sp.root)
		ss.reshaped(anchor, was)
		ss.orphaned(anchor)
	} else {
		ss.freeNode(sp.root)
	}
	if sp.order.spaces--; sp.order.spaces == 0 {
		ss.dropOrder(sp.order)
	}
}

// orphaned must be called for a node that may have lost its last child. If the node is an
// unpinned leaf now, it enters its order. If it is the root of a space, the space is closed.
func (ss *spaces) orphaned(id NodeID) {
	n := &ss.nodes[id]
	switch {
	case !n.isLeaf():
	case n.flags&isRoot != 0:
		ss.close(n.space)
	case n.pins == 0:
		ss.enlist(id)
	}
}

// orderOf returns the order for the nodes of a namespace: the namespace's own order if it
// has a quota, which orderOf makes if needed, else the common order.
func (ss *spaces) orderOf(ns kv.Namespace) *order {
	q := ss.quotas[ns]
	if q == nil {
		return ss.common
	}
	for _, o := range ss.tenants {
		if o.quota == q {
			return o
		}
	}
	o := ss.newOrder(ss.newNode(&node{}))
	o.quota = q
	ss.tenants = append(ss.tenants, o)
	return o
}

// moveOrder moves the spaces of a namespace into the order that orderOf gives, after
// SetQuota set its first quota or removed it. It adds the leaves by rising stamp, so that
// each goes to the back of a new order's line in O(1). It sorts the spaces first, since the
// map's order is random and equal calls must give equal trees.
func (ss *spaces) moveOrder(ns kv.Namespace) {
	to := ss.orderOf(ns)
	var spaces []*space
	for key, sp := range ss.alive {
		if key.ns == ns {
			spaces = append(spaces, sp)
		}
	}
	slices.SortFunc(spaces, func(a, b *space) int { return int(a.root) - int(b.root) })
	var leaves []NodeID
	for _, sp := range spaces {
		from := sp.order
		ss.eachNode(sp.root, func(id NodeID) {
			n := &ss.nodes[id]
			ss.delist(id)
			from.pages -= n.pages.Len()
			to.pages += n.pages.Len()
			if n.pins == 0 && n.isLeaf() {
				leaves = append(leaves, id)
			}
		})
		sp.order = to
		to.spaces++
		if from.spaces--; from.spaces == 0 {
			ss.dropOrder(from)
		}
	}
	slices.SortFunc(leaves, func(a, b NodeID) int {
		return cmp.Compare(ss.nodes[a].stamp, ss.nodes[b].stamp)
	})
	for _, id := range leaves {
		ss.enlist(id)
	}
	if to.spaces == 0 {
		ss.dropOrder(to)
	}
}

// spacesByAnchor returns, for each node, the spaces that begin there and were not flushed,
// sorted by namespace. Under Root are the namespaces' own trees. Cost: all spaces of the
// tree.
func (ss *spaces) spacesByAnchor() map[NodeID][]*space {
	spaces := map[NodeID][]*space{}
	for key, sp := range ss.alive { // any order: sorted below
		spaces[key.anchor] = append(spaces[key.anchor], sp)
	}
	for _, list := range spaces {
		slices.SortFunc(list, func(a, b *space) int { return compareNamespaces(a.ns, b.ns) })
	}
	return spaces
}

// follow walks from cur along r.tokens[:end] as far as whole pages match, and returns the
// cursor there. At the end of the public tokens it goes on in the private space that begins
// there, if there is one. If reads is true, as for a match, it stops before distrusted
// nodes, and also returns the partial page after the whole pages.
//
// Example: with pages of 2 and 4 public tokens, a key 1 2 3 4 5 6 of salt "a" walks 1 2
// 3 4 in the space without salt, and 5 6 in the space of "a" that begins there.
func (ss *spaces) follow(cur cursor, r *route, end int, reads bool) (cursor, Partial) {
	if cur.tokens < r.public {
		var partial Partial
		if cur, partial = ss.descend(cur, r.tokens[:min(r.public, end)], reads); cur.tokens < r.public {
			return cur, partial
		}
	}
	if r.public > 0 && cur.tokens == r.public && ss.nodes[cur.node].space.ns != *r.ns {
		root, ok := Root, false
		if cur.offset == ss.nodes[cur.node].tokens.Len() && ss.nodes[cur.node].flags&isAnchor != 0 {
			root, ok = ss.enter(*r.ns, cur.node)
		}
		if !ok {
			return cur, Partial{}
		}
		cur.node, cur.offset = root, 0
	}
	return ss.descend(cur, r.tokens[:end], reads)
}

// compareNamespaces orders namespaces by model, LoRA and salt.
func compareNamespaces(a, b kv.Namespace) int {
	return cmp.Or(strings.Compare(a.Model, b.Model), strings.Compare(a.LoRA, b.LoRA), strings.Compare(a.Salt, b.Salt))
}
