package radixcache

import (
	"fmt"
	"math"

	"github.com/coppice-llm/coppice/internal/wide"
	"github.com/coppice-llm/coppice/kv"
)

// NodeID names a node of one [Cache] while that node lives. Ids are reused
// after eviction; a pinned node keeps its id, and the end of its tokens.
type NodeID uint32

// Root stands for "nothing matched". It is never evicted; pinning and
// unpinning it does nothing.
const Root NodeID = 0

// fewKids is how many children a node names itself; more stand in a fork.
const fewKids = 3

// node is one run of tokens between two forks. There are three kinds: the
// unexposed root of a [space] (no tokens, flag isRoot), runs of whole pages,
// and tail leaves (fewer tokens than a page, one page, no children).
//
// On 64-bit machines it is two cache lines, the first of which is all that a
// match reads. What a walk writes, it writes to the node at which it ends: what
// the nodes above have to know of it they learn when that one is removed and
// they may become leaves themselves (absorb). Until then nobody asks them.
type node struct {
	tokens wide.Vec[kv.Token] // the edge [start, start+len), owned, never aliased
	fork   *fork              // the children if there are more than fewKids
	start  int32              // tokens before the edge
	parent NodeID             // Root for the root of a space without anchor
	pins   int32              // handles held on the node itself, if any: 1; plus the children with pins
	few    [fewKids]kid       // the children if fork is nil, ascending by first page
	count  uint8              // of few
	flags  uint8
	skip   uint16 // tokens that all of few share, at least; 0 with less than two

	pages  wide.Packed[kv.PageID] // len = CeilPages(len(tokens)), ascending token position
	hashes *[]kv.BlockHash        // of the blocks whose last token is in the edge, in order; nil if none
	space  *space                 // nil in an unused slot
	stamp  uint64                 // clock of the last walk that ended here, or that an absorbed child saw
	mark   uint64                 // what the policy remembers: see policy.go
	hits   uint32                 // reuses that ended here, or below in absorbed children
	prio   int32                  // highest priority of a request that ended here, or below in absorbed children
	held   int32                  // handles held on this node itself
	gen    uint32                 // how often the slot was freed: tells a node from an earlier one of that id
}

// Flags of a node.
const (
	isRoot   = 1 << iota // of a space
	hasDoors             // private spaces begin at its end: see space
	inLine               // in its order's line
	queued               // as a link: see join.go
)

// end is the number of tokens from the root to the end of the edge.
func (n *node) end() int { return int(n.start) + n.tokens.Len() }

// reused counts reuses, up to what fits.
func (n *node) reused(times uint32) { n.hits += min(times, math.MaxUint32-n.hits) }

// isLeaf tells whether nothing stands below a node.
func (n *node) isLeaf() bool { return n.count == 0 && n.fork == nil && n.flags&hasDoors == 0 }

// isLink tells whether a node and its one child could be one run, by their shape alone.
func (c *Cache) isLink(n *node) bool {
	return n.count == 1 && n.fork == nil && n.flags&(hasDoors|isRoot) == 0 && !c.isTail(&c.nodes[n.few[0].id])
}

// isTail tells a tail leaf from a run of whole pages.
func (c *Cache) isTail(n *node) bool { return n.tokens.Len()%c.cfg.PageTokens != 0 }

// newNode takes a slot for n. It may move the slab: no *node survives it.
func (c *Cache) newNode(n node) NodeID {
	if last := len(c.free) - 1; last >= 0 {
		id := c.free[last]
		c.free = c.free[:last]
		n.gen = c.nodes[id].gen
		c.nodes[id] = n
		return id
	}
	c.nodes, c.line = append(c.nodes, n), append(c.line, lineLink{})
	for i := range c.places {
		if c.places[i] != nil || i == byAge {
			c.places[i] = append(c.places[i], nowhere)
		}
	}
	return NodeID(len(c.nodes) - 1)
}

// freeNode gives a slot back and lets go of what it held.
func (c *Cache) freeNode(id NodeID) {
	c.nodes[id] = node{gen: c.nodes[id].gen + 1}
	c.free = append(c.free, id)
}

// live returns the node of an id that a caller passed in.
func (c *Cache) live(id NodeID, call string) *node {
	if int(id) >= len(c.nodes) || c.nodes[id].space == nil || c.nodes[id].flags&isRoot != 0 {
		panic(fmt.Sprintf("radixcache: %s: no node %d", call, id))
	}
	return &c.nodes[id]
}

// outer is the node itself, or for the root of a space the node at which the
// space begins: what a caller may see of it.
func (c *Cache) outer(id NodeID) NodeID {
	if c.nodes[id].flags&isRoot != 0 {
		return c.nodes[id].parent
	}
	return id
}

// shape is what of a node is counted. Every change of a node's children lies
// between a shapeOf and a reshaped.
type shape struct{ leaf, link bool }

func (c *Cache) shapeOf(id NodeID) shape {
	n := &c.nodes[id]
	if n.flags&isRoot != 0 {
		return shape{}
	}
	return shape{n.isLeaf(), c.isLink(n)}
}

func (c *Cache) reshaped(id NodeID, was shape) {
	is := c.shapeOf(id)
	c.counts.Leaves += count(is.leaf) - count(was.leaf)
	c.links += count(is.link) - count(was.link)
	if is.link && !was.link {
		c.loosen(id)
	}
}

func count(b bool) int {
	if b {
		return 1
	}
	return 0
}

// size measures a set of nodes.
type size struct{ tokens, pages int }

func (s *size) add(tokens, pages int) {
	s.tokens += tokens
	s.pages += pages
}

// weigh adds a node's tokens and pages to what its pins make of them, or takes
// them off.
func (c *Cache) weigh(n *node, tokens, pages int) {
	if n.pins > 0 {
		c.protected.add(tokens, pages)
		n.space.protected.add(tokens, pages)
	} else {
		c.evictable.add(tokens, pages)
		n.space.evictable.add(tokens, pages)
	}
}

// weighAll is weigh for all that a node holds; sign is 1 or -1.
func (c *Cache) weighAll(n *node, sign int) {
	c.weigh(n, sign*n.tokens.Len(), sign*n.pages.Len())
}
