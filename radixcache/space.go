package radixcache

import (
	"strings"

	"github.com/coppice-llm/coppice/kv"
)

// space is one subtree whose root stands for a namespace: the whole of it, or,
// with an anchor, what the namespace has to itself behind a public prefix. Such
// a private space begins at the end of its anchor, a node of the public space,
// and keeps it from being a leaf; but it is not among its children, so that no
// other namespace can find it.
type space struct {
	ns     kv.Namespace
	root   NodeID
	anchor NodeID    // Root for a whole namespace
	hasher kv.Hasher // at the start of a sequence; copied, never advanced
	order  *order    // in which its nodes are evicted
	dead   bool      // flushed: matches don't find it, it waits for its pins and Evict

	evictable, protected size
	hits                 uint64 // tokens that pins and inserts found here
}

// spaceKey finds a space that is alive.
type spaceKey struct {
	ns     kv.Namespace
	anchor NodeID
}

// enter returns the root of the space of ns below an anchor, if there is one.
func (c *Cache) enter(ns kv.Namespace, anchor NodeID) (NodeID, bool) {
	if sp := c.latest; sp != nil && anchor == Root && sp.ns == ns {
		return sp.root, true
	}
	sp := c.spaces[spaceKey{ns, anchor}]
	if sp == nil {
		return Root, false
	}
	if anchor == Root {
		c.latest = sp
	}
	return sp.root, true
}

// open is enter that makes the space if needed. Below an anchor that was
// flushed it makes one that is as dead.
func (c *Cache) open(ns kv.Namespace, anchor NodeID) NodeID {
	if root, ok := c.enter(ns, anchor); ok {
		return root
	}
	// The strings may be cut from a whole request's text.
	ns = kv.Namespace{Model: strings.Clone(ns.Model), LoRA: strings.Clone(ns.LoRA), Salt: strings.Clone(ns.Salt)}
	sp := &space{ns: ns, anchor: anchor}
	if c.cfg.Events {
		sp.hasher = *kv.NewHasher(ns, c.cfg.BlockTokens)
	}
	n := node{space: sp, parent: anchor, flags: isRoot}
	if anchor == Root {
		sp.order = c.orderOf(ns)
	} else {
		public := &c.nodes[anchor]
		n.start = int32(public.end())
		if sp.dead = public.space.dead; sp.dead {
			sp.order = public.space.order
		} else {
			sp.order = c.orderOf(ns)
		}
		was := c.shapeOf(anchor)
		c.delist(anchor)
		c.nodes[anchor].flags |= hasDoors // orderOf may have moved the slab
		c.doors[anchor]++
		c.reshaped(anchor, was)
	}
	sp.root = c.newNode(n)
	if !sp.dead {
		c.spaces[spaceKey{ns, anchor}] = sp
	}
	sp.order.spaces++
	c.openSpaces++
	return sp.root
}

// close removes a space whose root has nothing below it any more. Its anchor
// may become a leaf.
func (c *Cache) close(sp *space) {
	if !sp.dead {
		delete(c.spaces, spaceKey{sp.ns, sp.anchor})
	}
	if c.latest == sp {
		c.latest = nil
	}
	c.openSpaces--
	if anchor := sp.anchor; anchor != Root {
		was := c.shapeOf(anchor)
		if c.doors[anchor]--; c.doors[anchor] == 0 {
			delete(c.doors, anchor)
			c.nodes[anchor].flags &^= hasDoors
		}
		c.absorb(anchor, sp.root)
		c.freeNode(sp.root)
		c.reshaped(anchor, was)
		c.orphaned(anchor)
	} else {
		c.freeNode(sp.root)
	}
	if sp.order.spaces--; sp.order.spaces == 0 {
		c.dropOrder(sp.order)
	}
}
