package radixcache

import (
	"fmt"
	"slices"
	"strings"

	"github.com/coppice-llm/coppice/internal/invariants"
	"github.com/coppice-llm/coppice/kv"
)

// NodeID names a node of one [Cache] while that node lives. Ids are reused
// after eviction; a pinned node keeps its id.
type NodeID uint32

// Root stands for "nothing matched". It is never evicted; pinning and
// unpinning it does nothing.
const Root NodeID = 0

// Cache is the prefix tree. See the package comment for who calls it.
type Cache struct {
	cfg    Config
	nodes  []node                  // slab, by NodeID; nodes[Root] is never used
	free   []NodeID                // unused slots of nodes, last freed is taken first
	spaces map[kv.Namespace]*space // only namespaces that hold something
	line   []lineLink              // by NodeID, as nodes is: the order of eviction, see order.go
	heap   lateHeap                // unpinned nodes older than all in the line, least recent on top

	clock   uint64 // accesses so far; the stamp of the latest walk
	version uint64 // changes of the tree's shape so far, which end the validity of a Match

	evictable size       // of nodes with pins == 0
	protected size       // of nodes with pins > 0
	counts    Stats      // all but the sums over evictable and protected
	journal   []kv.Event // since the last TakeEvents
}

// node is one run of tokens between two forks. There are three kinds: the
// unexposed root of a namespace (no tokens, parent == Root), runs of whole
// pages, and tail leaves (fewer tokens than a page, one page, no children).
//
// On 64-bit machines it is two cache lines, the first of which is all that a
// match reads.
type node struct {
	tokens []kv.Token  // the edge [start, start+len), owned, never aliased
	pages  []kv.PageID // len = CeilPages(len(tokens)), ascending token position
	fork   *fork       // the children if there are two or more
	only   NodeID      // the child if there is one, else Root
	start  int32       // tokens before the edge

	hashes []kv.BlockHash // of the blocks whose last token is in the edge, in order; only with Events
	space  *space         // nil in an unused slot
	stamp  uint64         // clock of the last walk over the whole edge; never above the parent's
	parent NodeID         // Root for the root of a namespace
	pins   int32          // handles held on this node and below: held + sum of the children's pins
	held   int32          // handles held on this node itself
	queue  int32          // index in Cache.heap, or inLine, parked, nowhere
}

// space is one namespace that holds something.
type space struct {
	ns     kv.Namespace
	root   NodeID
	hasher kv.Hasher // at the start of a sequence; copied, never advanced
}

// size measures a set of nodes.
type size struct{ tokens, pages int }

// New returns an empty cache, or an error that wraps [ErrConfig].
func New(cfg Config) (*Cache, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Cache{cfg: cfg.WithDefaults(), nodes: make([]node, 1), line: make([]lineLink, 1), spaces: map[kv.Namespace]*space{}}, nil
}

// Config is the configuration in use, defaults filled in.
func (c *Cache) Config() Config { return c.cfg }

// newNode takes a slot for n. It may move the slab: no *node survives it.
func (c *Cache) newNode(n node) NodeID {
	n.queue = nowhere
	if last := len(c.free) - 1; last >= 0 {
		id := c.free[last]
		c.free = c.free[:last]
		c.nodes[id] = n
		return id
	}
	c.nodes, c.line = append(c.nodes, n), append(c.line, lineLink{})
	return NodeID(len(c.nodes) - 1)
}

// freeNode gives a slot back and lets go of what it held.
func (c *Cache) freeNode(id NodeID) {
	c.nodes[id] = node{queue: nowhere}
	c.free = append(c.free, id)
}

// live returns the node of an id that a caller passed in.
func (c *Cache) live(id NodeID, call string) *node {
	if int(id) >= len(c.nodes) || c.nodes[id].space == nil || c.nodes[id].parent == Root {
		panic(fmt.Sprintf("radixcache: %s: no node %d", call, id))
	}
	return &c.nodes[id]
}

// openSpace returns the root of a namespace, made if needed.
func (c *Cache) openSpace(ns kv.Namespace) NodeID {
	sp := c.spaces[ns]
	if sp == nil {
		// The strings may be cut from a whole request's text.
		ns = kv.Namespace{LoRA: strings.Clone(ns.LoRA), Salt: strings.Clone(ns.Salt)}
		sp = &space{ns: ns}
		if c.cfg.Events {
			sp.hasher = *kv.NewHasher(ns, c.cfg.BlockTokens)
		}
		sp.root = c.newNode(node{space: sp})
		c.spaces[ns] = sp
	}
	return sp.root
}

func (c *Cache) isSpaceRoot(id NodeID) bool { return c.nodes[id].parent == Root }

// attach makes n an unpinned leaf below n.parent, to be refreshed by the caller.
func (c *Cache) attach(n node) NodeID {
	if c.nodes[n.parent].isLeaf() && !c.isSpaceRoot(n.parent) {
		c.counts.Leaves--
	}
	id := c.newNode(n)
	c.link(n.parent, id)
	c.evictable.add(&c.nodes[id], 1)
	c.counts.Nodes++
	c.counts.Leaves++
	if c.isTail(&c.nodes[id]) {
		c.counts.Tails++
	}
	c.version++
	return id
}

// detach removes an unpinned leaf and appends its pages to freed. The parent
// may become a leaf, or vanish if it is the empty root of a namespace.
func (c *Cache) detach(id NodeID, freed []kv.PageID) []kv.PageID {
	n := &c.nodes[id]
	if n.pins != 0 || !n.isLeaf() {
		panic(fmt.Sprintf("radixcache: removing node %d with %d pins and children %v", id, n.pins, slices.Collect(c.children(id))))
	}
	parent := n.parent
	c.leaveOrder(id)
	c.unlink(parent, id)
	c.journalRemoved(n)
	freed = append(freed, n.pages...)
	c.evictable.add(n, -1)
	c.counts.Nodes--
	c.counts.Leaves--
	if c.isTail(n) {
		c.counts.Tails--
	}
	c.freeNode(id)
	c.version++

	if !c.nodes[parent].isLeaf() {
		return freed
	}
	if c.isSpaceRoot(parent) {
		delete(c.spaces, c.nodes[parent].space.ns)
		c.freeNode(parent)
		return freed
	}
	c.counts.Leaves++
	return freed
}

// split cuts a node's edge after k tokens, a whole number of pages. The node
// keeps its id, handles and children as the lower half, so that handles of
// running requests stay valid; the new upper half is returned. Both halves are
// copies: neither keeps the other's memory alive.
func (c *Cache) split(id NodeID, k int) NodeID {
	n := &c.nodes[id]
	if k <= 0 || k >= len(n.tokens) || k%c.cfg.PageTokens != 0 {
		panic(fmt.Sprintf("radixcache: splitting node %d of %d tokens after %d, pages of %d", id, len(n.tokens), k, c.cfg.PageTokens))
	}
	parent := n.parent
	pages, hashes := k/c.cfg.PageTokens, c.blocksEnding(int(n.start), k)
	upper := c.newNode(node{
		tokens: slices.Clone(n.tokens[:k]),
		pages:  slices.Clone(n.pages[:pages]),
		only:   id,
		space:  n.space,
		stamp:  n.stamp,
		start:  n.start,
		parent: parent,
		pins:   n.pins,
	})
	c.relink(parent, id, upper)
	n = &c.nodes[id] // the slab may have moved
	if c.cfg.Events {
		c.nodes[upper].hashes = slices.Clone(n.hashes[:hashes])
		n.hashes = slices.Clone(n.hashes[hashes:])
	}
	n.tokens, n.pages = slices.Clone(n.tokens[k:]), slices.Clone(n.pages[pages:])
	n.start += int32(k)
	n.parent = upper
	c.joinUpper(upper, id)
	c.counts.Nodes++
	c.counts.Splits++
	c.version++
	return upper
}

// isTail tells a tail leaf from a run of whole pages.
func (c *Cache) isTail(n *node) bool { return len(n.tokens)%c.cfg.PageTokens != 0 }

func (s *size) add(n *node, sign int) {
	s.tokens += sign * len(n.tokens)
	s.pages += sign * len(n.pages)
}

// verify runs the full walk after a mutation, under -tags invariants only.
func (c *Cache) verify(call string) {
	if invariants.Enabled {
		if err := c.Check(); err != nil {
			panic(fmt.Sprintf("radixcache: after %s: %v", call, err))
		}
	}
}
