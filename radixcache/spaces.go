package radixcache

import (
	"cmp"
	"slices"
	"strings"

	"github.com/coppice-llm/coppice/kv"
)

// spaces is the layer above eviction that knows namespaces: where each begins in
// the tree, and how many pages it may hold.
type spaces struct {
	eviction
	alive  map[spaceKey]*space     // spaces that were not flushed; each holds something
	latest *space                  // the space without anchor that was entered last, or nil: mostly the next one too
	doors  map[NodeID]int32        // number of private spaces that begin at a node
	quotas map[kv.Namespace]*Quota // quotas as set by SetQuota, also of namespaces that hold nothing
	open   int                     // number of spaces, dead ones included
}

func newSpaces(cfg Config) spaces {
	return spaces{eviction: newEviction(cfg), alive: map[spaceKey]*space{}, doors: map[NodeID]int32{}, quotas: map[kv.Namespace]*Quota{}}
}

// enter returns the root of a namespace's space below an anchor, and whether there is
// one. A request enters its space at each match, so the last one is kept at hand: a
// comparison of three strings instead of a hash of them.
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

// openSpace is enter that makes the space if needed. Below an anchor that was flushed
// it makes a space that is flushed too, which enter never finds: a handle from before
// the flush publishes into the old tree only.
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
	if anchor == Root {
		sp.order = ss.orderOf(ns)
	} else {
		public := &ss.nodes[anchor]
		n.start = int32(public.end())
		if sp.dead = public.space.dead; sp.dead {
			sp.order = public.space.order
		} else {
			sp.order = ss.orderOf(ns)
		}
		was := ss.shapeOf(anchor)
		ss.delist(anchor)
		ss.nodes[anchor].flags |= hasDoors // orderOf may have moved the slab
		ss.doors[anchor]++
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

// close removes a space whose root has no children left. Its anchor absorbs the
// root's use and may become a leaf.
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
		if ss.doors[anchor]--; ss.doors[anchor] == 0 {
			delete(ss.doors, anchor)
			ss.nodes[anchor].flags &^= hasDoors
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

// orphaned handles a node that may have lost its last child: an unpinned leaf enters
// its order, and an empty space is closed.
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

// orderOf returns the order for the nodes of a namespace, and makes it if needed: the
// namespace's own if it has a quota, else the common one.
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

// moveOrder moves the spaces of a namespace into the order that its quota asks for,
// after SetQuota gave or removed one. Leaves move by rising stamp, so a new order's line
// takes each at its back in O(1). Spaces are sorted first, since the map's order is
// random and equal calls must give equal trees.
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

// spacesByAnchor returns the living spaces that begin at each node, sorted by
// namespace. Cost: all spaces of the tree.
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

// follow walks on from a cursor as far as whole pages match, up to end tokens, and
// through the door to a private space at the end of the public tokens. With reads, as
// for a match, it stops before distrusted nodes, and looks for a partial page.
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
		if cur.offset == ss.nodes[cur.node].tokens.Len() && ss.nodes[cur.node].flags&hasDoors != 0 {
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

// before reports whether namespace a sorts before b.
func before(a, b kv.Namespace) bool { return compareNamespaces(a, b) < 0 }
