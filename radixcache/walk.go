package radixcache

import (
	"iter"

	"github.com/coppice-llm/coppice/kv"
)

// NodeView is one node as [Cache.Walk] shows it. Tokens belong to the tree
// and are valid until its next change.
type NodeView struct {
	ID        NodeID
	Parent    NodeID // Root at the beginning of a namespace
	Namespace kv.Namespace
	Start     int         // tokens before it
	Tokens    []kv.Token  // values from MediaToken on stand for media
	Pages     []kv.PageID // ascending token position; a copy
	Leaf      bool
	Tail      bool   // its one page is not full
	Pins      int    // handles on it, if any: 1; and children with pins
	Stamp     uint64 // clock of the last walk that ended here
	Hits      uint64 // reuses that ended here
	Priority  int32  // highest of a request that ended here
	Mark      uint64 // what the policy remembers of it
}

// Walk goes through all nodes, parents before children, siblings ascending,
// namespaces in order, private ones behind the node at which they begin. What
// was flushed is not shown. The tree must not change meanwhile.
func (c *Cache) Walk() iter.Seq[NodeView] { return c.WalkTo(0) }

// WalkTo is Walk without the nodes that have depth others, or more, before them, which it
// does not look at; 0 leaves none out.
func (c *Cache) WalkTo(depth int) iter.Seq[NodeView] {
	return func(yield func(NodeView) bool) { c.walkSpaces(c.spacesByAnchor(), Root, depth, yield) }
}

func (c *Cache) walkSpaces(spaces map[NodeID][]*space, anchor NodeID, depth int, yield func(NodeView) bool) bool {
	for _, sp := range spaces[anchor] {
		if !c.walkBelow(spaces, sp.root, depth, yield) {
			return false
		}
	}
	return true
}

func (c *Cache) walkBelow(spaces map[NodeID][]*space, parent NodeID, depth int, yield func(NodeView) bool) bool {
	for id := range c.children(parent) {
		n := &c.nodes[id]
		v := NodeView{
			ID: id, Parent: c.outer(n.parent), Namespace: n.space.ns, Start: int(n.start),
			Tokens: n.tokens.Slice(), Pages: n.pages.Slice(), Leaf: n.isLeaf(), Tail: c.isTail(n),
			Pins: int(n.pins), Stamp: n.stamp, Hits: uint64(n.hits), Priority: n.prio, Mark: n.mark,
		}
		if !yield(v) {
			return false
		}
		if depth == 1 {
			continue
		}
		if !c.walkBelow(spaces, id, depth-1, yield) || n.flags&hasDoors != 0 && !c.walkSpaces(spaces, id, depth-1, yield) {
			return false
		}
	}
	return true
}
