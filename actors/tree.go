package actors

import (
	"context"
	"iter"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/radixcache"
)

// TreeQuery bounds what Tree shows; 0 is no bound.
type TreeQuery struct {
	MaxDepth      int // nodes on the way from the root, 1 for the first ones
	MaxNodes      int
	TokensPerNode int // in TreeNode.First; 0 for none
}

// Tree is what the cache holds.
type Tree struct {
	Nodes []TreeNode // parents before children, siblings ascending
	// Hidden are nodes that a bound left out. With MaxDepth, and where MaxNodes left some out,
	// those that were flushed and that running requests still use are among them.
	Hidden int
}

// TreeNode is a run of tokens that the cache holds.
type TreeNode struct {
	ID, Parent radixcache.NodeID // Parent is radixcache.Root at the beginning of a namespace
	Namespace  kv.Namespace
	Start      int // tokens before it
	Tokens     int
	First      []kv.Token // the first of them
	Pages      int
	Leaf       bool
	Tail       bool   // its one page is not full
	Pins       int    // handles on it, and children with pins
	Hits       uint64 // reuses that ended here
	Stamp      uint64 // larger is used later
}

// Tree lists the cache's nodes. It costs the scheduler a walk of those that are shown: some
// 0.2 µs a node.
func (s *System) Tree(ctx context.Context, q TreeQuery) (Tree, error) {
	return ask(ctx, s, func(a *schedulerActor) (t Tree) {
		if cache := a.core.Cache(); cache != nil {
			t = q.show(cache.WalkTo(q.MaxDepth), cache.Stats().Nodes)
		}
		return t
	})
}

// show lists the nodes of a walk to MaxDepth, of all that there are.
func (q TreeQuery) show(walk iter.Seq[radixcache.NodeView], all int) (t Tree) {
	n, cut := all, q.MaxDepth > 0
	if q.MaxNodes > 0 {
		n = min(n, q.MaxNodes)
	}
	t.Nodes = make([]TreeNode, 0, n)
	for v := range walk {
		if q.MaxNodes > 0 && len(t.Nodes) == q.MaxNodes {
			cut = true
			break
		}
		t.Nodes = append(t.Nodes, TreeNode{
			ID: v.ID, Parent: v.Parent, Namespace: v.Namespace, Start: v.Start, Tokens: len(v.Tokens),
			First: append([]kv.Token(nil), v.Tokens[:min(len(v.Tokens), q.TokensPerNode)]...),
			Pages: len(v.Pages), Leaf: v.Leaf, Tail: v.Tail, Pins: v.Pins, Hits: v.Hits, Stamp: v.Stamp,
		})
	}
	if cut {
		t.Hidden = all - len(t.Nodes)
	}
	return t
}
