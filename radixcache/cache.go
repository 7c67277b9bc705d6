package radixcache

import (
	"fmt"

	"github.com/coppice-llm/coppice/internal/invariants"
	"github.com/coppice-llm/coppice/kv"
)

// Cache is the prefix tree. See the package comment for who calls it.
type Cache struct {
	cfg    Config
	nodes  []node              // slab, by NodeID; nodes[Root] is never used
	free   []NodeID            // unused slots of nodes, last freed is taken first
	line   []lineLink          // by NodeID, as nodes is: see order
	places [heapKinds][]int32  // by NodeID: index in the heap of that kind, or nowhere
	spaces map[spaceKey]*space // those that are alive; each holds something
	latest *space              // of those without anchor the one last entered, or nil
	doors  map[NodeID]int32    // private spaces that begin at a node

	common     *order                  // of all namespaces without a quota
	tenants    []*order                // with one, alive, in the order of their first Insert
	dead       []*order                // flushed
	quotas     map[kv.Namespace]*Quota // as set
	openSpaces int                     // dead ones too

	clock   uint64 // accesses so far; the stamp of the latest walk
	version uint64 // changes of the tree's shape so far, which end the validity of a Match
	born    uint64 // the version at which Restore made the tree: a Match from before is of other nodes
	epoch   uint64 // flushes so far
	horizon uint64 // accesses that what has no credit lives: see Cache.evicted

	removed bool        // something was, to make room or as it was old: see join.go
	links   int         // nodes with a single child: see join.go
	loose   []linkID    // of them, those to be joined when there are too many
	stiff   []linkID    // of those, the ones whose joining loses something
	spared  NodeID      // a link that must not be joined yet, or Root
	runs    []kv.Token  // scratch of fuse
	lists   []kv.PageID // scratch of fuse

	evictable size // of nodes with pins == 0
	protected size // of nodes with pins > 0
	counts    Stats
	journal   []kv.Event // since the last TakeEvents

	media    media
	prefixes prefixPins
	ages     ages
	ghosts   ghosts
	curve    curve
}

// New returns an empty cache, or an error that wraps [ErrConfig].
func New(cfg Config) (*Cache, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	c := &Cache{
		cfg: cfg.WithDefaults(), nodes: make([]node, 1), line: make([]lineLink, 1),
		spaces: map[spaceKey]*space{}, doors: map[NodeID]int32{}, quotas: map[kv.Namespace]*Quota{},
	}
	c.places[byAge] = []int32{nowhere}
	if c.cfg.Policy != LRU {
		c.places[byRank] = []int32{nowhere}
	}
	c.common = c.newOrder(Root)
	c.curve = newCurve(c.cfg.CurveSamples, c.cfg.PageTokens)
	return c, nil
}

// Config is the configuration in use, defaults filled in.
func (c *Cache) Config() Config { return c.cfg }

// floorTokens rounds down to whole pages.
func (c *Cache) floorTokens(n int) int { return n - n%c.cfg.PageTokens }

// attach makes n an unpinned leaf below n.parent; the caller touches it.
func (c *Cache) attach(n node) NodeID {
	parent := n.parent
	was := c.shapeOf(parent)
	c.unheap(parent)
	n.stamp = c.clock
	id := c.newNode(n)
	c.remark(&c.nodes[id])
	c.link(parent, id)
	c.reshaped(parent, was)
	added := &c.nodes[id]
	c.hold(added, added.tokens.Len(), added.pages.Len())
	c.media.count(added.tokens.Slice(), 1)
	c.counts.Nodes++
	c.counts.Leaves++
	if c.isTail(added) {
		c.counts.Tails++
	}
	c.version++
	return id
}

// detach removes an unpinned leaf and appends its pages to freed. The parent
// may become a leaf, or vanish if it is the root of a space.
func (c *Cache) detach(id NodeID, freed []kv.PageID) []kv.PageID {
	n := &c.nodes[id]
	if n.pins != 0 || !n.isLeaf() {
		panic(fmt.Sprintf("radixcache: removing node %d with %d pins, %d children", id, n.pins, n.count))
	}
	parent := n.parent
	was := c.shapeOf(parent)
	c.delist(id)
	c.unlink(parent, id)
	c.journalRemoved(n, 0)
	freed = n.pages.AppendTo(freed, 0)
	c.hold(n, -n.tokens.Len(), -n.pages.Len())
	c.media.count(n.tokens.Slice(), -1)
	c.counts.Nodes--
	c.counts.Leaves--
	if c.isTail(n) {
		c.counts.Tails--
	}
	c.absorb(parent, id)
	c.freeNode(id)
	c.reshaped(parent, was)
	c.version++
	c.orphaned(parent)
	return freed
}

// hold counts what a node takes in, or lets go of.
func (c *Cache) hold(n *node, tokens, pages int) {
	c.weigh(n, tokens, pages)
	n.space.order.pages += pages
}

// verify runs the full walk after a mutation, under -tags invariants only.
func (c *Cache) verify(call string) {
	if invariants.Enabled {
		if err := c.Check(); err != nil {
			panic(fmt.Sprintf("radixcache: after %s: %v", call, err))
		}
	}
}
