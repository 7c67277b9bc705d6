package radixcache

import (
	"cmp"
	"slices"
	"strings"

	"github.com/coppice-llm/coppice/kv"
)

// spaces is the layer above eviction that knows namespaces: where each begins in
// the tree, and what it may hold.
type spaces struct {
	eviction
	alive  map[spaceKey]*space     // each holds something
	latest *space                  // of those without anchor the one last entered, or nil
	doors  map[NodeID]int32        // private spaces that begin at a node
	quotas map[kv.Namespace]*Quota // as set
	open   int                     // spaces, dead ones too
}

func newSpaces(cfg Config) spaces {
	return spaces{eviction: newEviction(cfg), alive: map[spaceKey]*space{}, doors: map[NodeID]int32{}, quotas: map[kv.Namespace]*Quota{}}
}

// enter returns the root of the space of ns below an anchor, if there is one.
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

// openSpace is enter that makes the space if needed. Below an anchor that was
// flushed it makes one that is as dead.
func (ss *spaces) openSpace(ns kv.Namespace, anchor NodeID) NodeID {
	if root, ok := ss.enter(ns, anchor); ok {
		return root
	}
	// The strings may be cut from a whole request's text.
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

// close removes a space whose root has nothing below it any more. Its anchor
// may become a leaf.
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

// orphaned takes up a node that may have lost its last child.
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

// orderOf is the order for the nodes of a namespace that is alive.
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

// moveOrder puts the spaces of a namespace into the order that its quota asks for.
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

// spacesByAnchor are the spaces that begin at each node, in order.
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

// follow walks on from a cursor as far as whole pages match, end tokens at most,
// through the door to a private space where the route has one. If it reads it stops
// at what is distrusted, and looks for a partial page.
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

func compareNamespaces(a, b kv.Namespace) int {
	return cmp.Or(strings.Compare(a.Model, b.Model), strings.Compare(a.LoRA, b.LoRA), strings.Compare(a.Salt, b.Salt))
}

func before(a, b kv.Namespace) bool { return compareNamespaces(a, b) < 0 }
