package radixcache

import (
	"fmt"

	"github.com/coppice-llm/coppice/internal/wide"
	"github.com/coppice-llm/coppice/kv"
)

// slab is the lowest layer of the tree: the nodes, the lists of their children, and
// counts of nodes, tokens and pages. It reads the nodes' tokens and links. It stores
// their use and pages, but does not decide by them.
//
// Nodes are named by 32-bit index and not by pointer: a child costs 4 bytes
// instead of 8, and the collector does not follow the links between nodes.
type slab struct {
	// A match reads these first fields, so they share few cache lines.
	cfg     Config
	nodes   []node // by NodeID; nodes[Root] is no node of the tree
	version uint64 // number of changes of the shape, each of which ends the validity of a Match
	doubts  doubts

	evictable size     // sum over the nodes with pins == 0 (SGLang: evictable_size)
	protected size     // sum over the nodes with pins > 0 (SGLang: protected_size)
	free      []NodeID // unused slots of nodes; the last freed is reused first, as it is still in cache
	links     links
	counts    Stats
	memory    wide.Arena[kv.Token] // memory of the nodes' tokens
}

// newSlot stores n in a free slot, or in a new slot at the end, and returns its id.
// Appending may move the slab, so pointers to nodes taken before are stale. A reused
// slot keeps its gen, which distinguishes the new node from earlier nodes in the slot.
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

// freeNode frees a node's tokens and its slot. It increments the slot's gen, so that
// queue entries and matches that still name the node are recognised as stale.
func (s *slab) freeNode(id NodeID) {
	if s.nodes[id].flags&distrusted != 0 {
		s.doubts.count--
	}
	s.memory.Free(&s.nodes[id].tokens)
	s.nodes[id] = node{gen: s.nodes[id].gen + 1}
	s.free = append(s.free, id)
}

// live returns the node of an id that a caller passed in. It panics if there is no such
// node or if it is the root of a space, which callers never see. call is the method that
// the caller called, for the panic's text.
func (s *slab) live(id NodeID, call string) *node {
	if int(id) >= len(s.nodes) || s.nodes[id].space == nil || s.nodes[id].flags&isRoot != 0 {
		panic(fmt.Sprintf("radixcache: %s: no node %d", call, id))
	}
	return &s.nodes[id]
}

// outer returns the id under which a caller may see a node: the id itself, or for
// the root of a space the node at which the space begins.
func (s *slab) outer(id NodeID) NodeID {
	if s.nodes[id].flags&isRoot != 0 {
		return s.nodes[id].parent
	}
	return id
}

// isTail reports whether a node is a tail leaf, not a run of whole pages.
func (s *slab) isTail(n *node) bool { return n.tokens.Len()%s.cfg.PageTokens != 0 }

// floorTokens rounds a number of tokens down to whole pages: with pages of 16, 37 becomes
// 32. It divides 32-bit numbers, because that takes half the time of a 64-bit division,
// and each match divides several times.
func (s *slab) floorTokens(n int) int { return n - int(uint32(n)%uint32(s.cfg.PageTokens)) }

// firstPage returns a child's first page of tokens, or all tokens of a tail leaf. No two
// siblings have the same first page; siblings are sorted and found by it.
func (s *slab) firstPage(id NodeID) []kv.Token {
	tokens := s.nodes[id].tokens.Slice()
	return tokens[:min(s.cfg.PageTokens, len(tokens))]
}

// weigh adds tokens and pages of a node to the sums: to the protected ones if the node has
// pins, otherwise to the evictable ones. Negative numbers subtract.
func (s *slab) weigh(n *node, tokens, pages int) {
	if n.pins > 0 {
		s.protected.add(tokens, pages)
	} else {
		s.evictable.add(tokens, pages)
	}
}

// weighAll is weigh for all tokens and pages of a node, added if sign is 1 and subtracted
// if it is -1. Code that changes a node's pins from or to 0 calls it with -1 before the
// change and with 1 after it.
func (s *slab) weighAll(n *node, sign int) {
	s.weigh(n, sign*n.tokens.Len(), sign*n.pages.Len())
}

// blocksEnding returns the number of blocks whose last token is in [start, start+n). With
// blocks of 16, two blocks end in [8, 40): [0, 16) and [16, 32).
func (s *slab) blocksEnding(start, n int) int {
	return (start+n)/s.cfg.BlockTokens - start/s.cfg.BlockTokens
}

// count returns 1 for true and 0 for false, to sum up conditions.
func count(b bool) int {
	if b {
		return 1
	}
	return 0
}
