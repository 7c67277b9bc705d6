package radixcache

import (
	"fmt"

	"github.com/coppice-llm/coppice/internal/wide"
	"github.com/coppice-llm/coppice/kv"
)

// slab is the lowest layer of the tree: the nodes, their children and what is
// counted of them. It knows shape and tokens; of use, age and pages it only keeps
// what the nodes carry.
type slab struct {
	// What a match reads comes first, in few cache lines.
	cfg     Config
	nodes   []node // by NodeID; nodes[Root] is never used
	version uint64 // changes of the shape so far, which end the validity of a Match
	doubts  doubts

	evictable size     // of nodes with pins == 0
	protected size     // of nodes with pins > 0
	free      []NodeID // unused slots of nodes, last freed is taken first
	links     links
	counts    Stats
	memory    wide.Arena[kv.Token] // of the nodes' tokens
}

// newSlot takes a slot for n. It may move the slab: no *node survives it.
func (s *slab) newSlot(n *node) NodeID {
	if last := len(s.free) - 1; last >= 0 {
		id := s.free[last]
		s.free = s.free[:last]
		n.gen = s.nodes[id].gen
		s.nodes[id] = *n
		return id
	}
	s.nodes = append(s.nodes, *n)
	return NodeID(len(s.nodes) - 1)
}

// freeNode gives a slot back and lets go of what it held.
func (s *slab) freeNode(id NodeID) {
	if s.nodes[id].flags&distrusted != 0 {
		s.doubts.count--
	}
	s.memory.Free(&s.nodes[id].tokens)
	s.nodes[id] = node{gen: s.nodes[id].gen + 1}
	s.free = append(s.free, id)
}

// live returns the node of an id that a caller passed in.
func (s *slab) live(id NodeID, call string) *node {
	if int(id) >= len(s.nodes) || s.nodes[id].space == nil || s.nodes[id].flags&isRoot != 0 {
		panic(fmt.Sprintf("radixcache: %s: no node %d", call, id))
	}
	return &s.nodes[id]
}

// outer is the node itself, or for the root of a space the node at which the
// space begins: what a caller may see of it.
func (s *slab) outer(id NodeID) NodeID {
	if s.nodes[id].flags&isRoot != 0 {
		return s.nodes[id].parent
	}
	return id
}

// isTail reports whether a node is a tail leaf, not a run of whole pages.
func (s *slab) isTail(n *node) bool { return n.tokens.Len()%s.cfg.PageTokens != 0 }

// floorTokens rounds down to whole pages. Dividing 32 bits takes half the time of 64, and a match does it at each of its ends.
func (s *slab) floorTokens(n int) int { return n - int(uint32(n)%uint32(s.cfg.PageTokens)) }

// firstPage is the part of a child that no sibling shares whole.
func (s *slab) firstPage(id NodeID) []kv.Token {
	tokens := s.nodes[id].tokens.Slice()
	return tokens[:min(s.cfg.PageTokens, len(tokens))]
}

// weigh adds a node's tokens and pages to what its pins make of them, or takes
// them off.
func (s *slab) weigh(n *node, tokens, pages int) {
	if n.pins > 0 {
		s.protected.add(tokens, pages)
		n.space.protected.add(tokens, pages)
	} else {
		s.evictable.add(tokens, pages)
		n.space.evictable.add(tokens, pages)
	}
}

// weighAll is weigh for all that a node holds; sign is 1 or -1.
func (s *slab) weighAll(n *node, sign int) {
	s.weigh(n, sign*n.tokens.Len(), sign*n.pages.Len())
}

// blocksEnding counts the blocks whose last token is in [start, start+n).
func (s *slab) blocksEnding(start, n int) int {
	return (start+n)/s.cfg.BlockTokens - start/s.cfg.BlockTokens
}

func count(b bool) int {
	if b {
		return 1
	}
	return 0
}
