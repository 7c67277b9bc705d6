package radixcache

import (
	"iter"

	"github.com/coppice-llm/coppice/kv"
)

// NodeView is one node as [Cache.Walk] shows it. Tokens belong to the tree and are valid
// until its next change.
type NodeView struct {
	ID        NodeID
	Parent    NodeID // Root at the beginning of a namespace
	Namespace kv.Namespace
	Start     int         // number of tokens before it
	Tokens    []kv.Token  // values from MediaToken on stand for media
	Pages     []kv.PageID // a copy, in the order of Tokens
	Leaf      bool
	Tail      bool   // whether it is a tail leaf, whose one page is not full
	Pins      int    // 1 if there are handles on it, plus the number of children with pins
	Stamp     uint64 // clock at the last walk that ended here
	Hits      uint64 // number of reuses that ended here
	Current   bool   // whether the last turn of a session ended here; only the policy Session knows
}

// Walk iterates over all nodes but those of flushed trees. Parents come before their
// children, siblings ascend by tokens, and namespaces by model, LoRA and salt. The nodes of
// a private space come after the node at which the space begins and after all nodes of the
// same namespace below that node. The loop's body must not change the tree.
func (c *Cache) Walk() iter.Seq[NodeView] { return c.WalkTo(0) }

// WalkTo is Walk limited to the first depth nodes of each path, without visiting the
// others; depth 0 sets no limit. With depth 1 it shows the top nodes of each namespace.
func (c *Cache) WalkTo(depth int) iter.Seq[NodeView] {
	return func(yield func(NodeView) bool) { c.walkSpaces(c.spacesByAnchor(), Root, depth, yield) }
}

// walkSpaces yields the nodes of the spaces that begin at an anchor, to the given depth, and
// returns false if yield did.
func (c *Cache) walkSpaces(spaces map[NodeID][]*space, anchor NodeID, depth int, yield func(NodeView) bool) bool {
	for _, sp := range spaces[anchor] {
		if !c.walkBelow(spaces, sp.root, depth, yield) {
			return false
		}
	}
	return true
}

// walkBelow yields the nodes below a node, and those of private spaces that begin at them,
// to the given depth. It returns false if yield did.
func (c *Cache) walkBelow(spaces map[NodeID][]*space, parent NodeID, depth int, yield func(NodeView) bool) bool {
	for id := range c.children(parent) {
		n := &c.nodes[id]
		v := NodeView{
			ID: id, Parent: c.outer(n.parent), Namespace: n.space.ns, Start: int(n.start),
			Tokens: n.tokens.Slice(), Pages: n.pages.Slice(), Leaf: n.isLeaf(), Tail: c.isTail(n),
			Pins: int(n.pins), Stamp: n.stamp, Hits: uint64(n.hits),
			Current: c.turns.by != nil && n.mark&flagHeld != 0,
		}
		if !yield(v) {
			return false
		}
		if depth == 1 {
			continue
		}
		if !c.walkBelow(spaces, id, depth-1, yield) || n.flags&isAnchor != 0 && !c.walkSpaces(spaces, id, depth-1, yield) {
			return false
		}
	}
	return true
}
