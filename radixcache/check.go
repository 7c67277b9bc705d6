package radixcache

import (
	"fmt"
	"slices"

	"github.com/coppice-llm/coppice/kv"
)

// Check walks the whole tree and all flushed trees. It returns an error with the values
// that break an invariant, or nil if all invariants hold. The tests plant a fault of each
// kind, and Check must find it. Cost: it reads all nodes and tokens and computes all
// hashes. Under -tags invariants it runs after each mutation.
func (c *Cache) Check() (err error) {
	defer func() {
		switch v := recover().(type) {
		case nil:
		case fault:
			err = v
		default:
			panic(v)
		}
	}()
	w := walk{
		c: c, seen: make([]bool, len(c.nodes)), uses: make([]int, len(c.media.entries)),
		pageOf: map[kv.PageID]NodeID{}, roots: map[NodeID][]NodeID{}, orders: map[*order]*tally{},
	}
	for id := range c.nodes {
		if n := &c.nodes[id]; n.flags&isRoot != 0 && n.space != nil {
			w.roots[n.parent] = append(w.roots[n.parent], NodeID(id))
		}
	}
	for _, root := range w.roots[Root] {
		w.space(root)
	}
	w.slab()
	w.sums()
	w.media()
	w.prefixes()
	w.eviction()
	w.queues()
	w.doubts()
	return nil
}

// fault is a broken invariant. The functions of a walk panic with it by failf, and Check returns it.
type fault string

func (f fault) Error() string { return string(f) }

func failf(format string, args ...any) { panic(fault("radixcache: " + fmt.Sprintf(format, args...))) }

// walk is the state of one Check: tables to compare the cache's own sums with.
type walk struct {
	c      *Cache
	seen   []bool               // by NodeID: reachable, free, or the edge of an order
	roots  map[NodeID][]NodeID  // roots of spaces by anchor, dead ones too
	pageOf map[kv.PageID]NodeID // owner of each page
	uses   []int                // by number of a medium: tokens that stand for it
	path   []kv.Token           // tokens from 0 to the end of the node being checked
	hashes []kv.BlockHash       // hashes of the blocks of path
	block  []kv.Token           // scratch memory of plain

	orders  map[*order]*tally
	all     tally
	arena   int // bytes of the arena that the nodes' tokens use
	leaves  int
	tails   int
	links   int
	living  int // spaces found that are not flushed
	anchors int // nodes at which private spaces begin
}

// tally sums up the nodes of a space, of an order, or of the whole cache.
type tally struct {
	evictable, protected size
	nodes, spaces        int
}

// add adds the sums of u to t.
func (t *tally) add(u tally) {
	t.evictable.add(u.evictable.tokens, u.evictable.pages)
	t.protected.add(u.protected.tokens, u.protected.pages)
	t.nodes += u.nodes
	t.spaces += u.spaces
}

// count adds one node to the sums.
func (t *tally) count(n *node) {
	t.nodes++
	if n.pins > 0 {
		t.protected.add(n.tokens.Len(), n.pages.Len())
	} else {
		t.evictable.add(n.tokens.Len(), n.pages.Len())
	}
}

// space checks the space with the given root and everything below it. It returns the number
// of the root's children that have pins. When it is called, w.path holds the tokens up to
// the end of the node at which the space begins.
func (w *walk) space(root NodeID) int32 {
	c, n := w.c, &w.c.nodes[root]
	sp := n.space
	w.spaceAlone(root, sp)
	w.seen[root] = true
	sum := tally{spaces: 1}
	pins := w.children(root, &sum)
	switch {
	case n.pins != pins:
		failf("root %d of namespace %+v has %d pins, %d below", root, sp.ns, n.pins, pins)
	case !sp.dead:
		w.living++
	}
	if w.orders[sp.order] == nil {
		w.orders[sp.order] = &tally{}
	}
	w.orders[sp.order].add(sum)
	w.all.add(sum)
	if sp.anchor == Root && c.latest == sp && sp.dead {
		failf("namespace %+v was flushed and is still the one entered last", sp.ns)
	}
	return pins
}

// spaceAlone checks the fields of a space and of its root, but not the nodes below.
func (w *walk) spaceAlone(root NodeID, sp *space) {
	c, n := w.c, &w.c.nodes[root]
	found := c.alive[spaceKey{sp.ns, sp.anchor}]
	switch {
	case sp.root != root || sp.anchor != n.parent || w.seen[root]:
		failf("namespace %+v at node %d has root %d, not %d at node %d", sp.ns, sp.anchor, sp.root, root, n.parent)
	case n.tokens.Len()+n.pages.Len() > 0 || n.hashes != nil || n.held != 0 || n.flags&^isRoot != 0 || int(n.start) != len(w.path):
		failf("root %d of namespace %+v is not empty, has %d handles, flags %b, or starts at %d, not %d", root, sp.ns, n.held, n.flags, n.start, len(w.path))
	case n.isLeaf():
		failf("namespace %+v at node %d holds nothing but is still there", sp.ns, sp.anchor)
	case (found == sp) == sp.dead:
		failf("namespace %+v at node %d, flushed: %v, found: %v", sp.ns, sp.anchor, sp.dead, found == sp)
	case n.stamp > c.clock:
		failf("root %d has stamp %d, the clock is at %d", root, n.stamp, c.clock)
	case sp.order == nil || sp.order.dead != sp.dead || !sp.dead && sp.order.quota != c.quotas[sp.ns]:
		failf("namespace %+v at node %d, flushed: %v, stands in the wrong order", sp.ns, sp.anchor, sp.dead)
	}
	if sp.anchor == Root {
		return
	}
	public, outer := c.nodes[sp.anchor].space, sp.ns
	outer.Salt = ""
	if sp.ns.Salt == "" || public.ns != outer || public.anchor != Root || public.dead != sp.dead {
		failf("namespace %+v, flushed: %v, begins at node %d of namespace %+v, flushed: %v", sp.ns, sp.dead, sp.anchor, public.ns, public.dead)
	}
}

// children checks the nodes below node id that are in its space, and adds them to sum. It
// returns how many children of the node have pins. Children must ascend by first page, and
// no two may have the same first page.
func (w *walk) children(id NodeID, sum *tally) int32 {
	c := w.c
	w.fork(id)
	var pins int32
	before := Root
	for kid := range c.children(id) {
		if w.seen[kid] {
			failf("child %d of node %d is linked twice", kid, id)
		}
		w.seen[kid] = true
		w.node(id, kid, sum)
		if before != Root && slices.Compare(c.firstPage(before), c.firstPage(kid)) >= 0 {
			failf("children %d, %d of node %d are out of order: %v, %v", before, kid, id, c.firstPage(before), c.firstPage(kid))
		}
		before = kid
		pins += int32(count(c.nodes[kid].pins > 0))
	}
	return pins
}

// node checks node id, a child of parent, and everything below it, and adds them to sum. A
// node must begin where its parent ends, have as many pages as its tokens need, share no
// page with another node, and have the right number of pins.
func (w *walk) node(parent, id NodeID, sum *tally) {
	c, n, p := w.c, &w.c.nodes[id], &w.c.nodes[parent]
	depth, blocks := len(w.path), len(w.hashes)
	switch {
	case n.parent != parent || n.space != p.space || n.flags&isRoot != 0:
		failf("node %d below %d has parent %d, flags %b, or another namespace", id, parent, n.parent, n.flags)
	case int(n.start) != depth || p.end() != depth:
		failf("node %d starts at %d, its parent %d ends at %d", id, n.start, parent, depth)
	case n.tokens.Len() == 0 || n.pages.Len() != kv.CeilPages(n.tokens.Len(), c.cfg.PageTokens):
		failf("node %d has %d tokens in %d pages", id, n.tokens.Len(), n.pages.Len())
	case c.isTail(n) && (n.tokens.Len() > c.cfg.PageTokens || !n.isLeaf()):
		failf("node %d has %d tokens, no whole pages, and something below", id, n.tokens.Len())
	case n.stamp > c.clock:
		failf("node %d has stamp %d, the clock is at %d", id, n.stamp, c.clock)
	}
	for _, page := range n.pages.Slice() {
		if owner, taken := w.pageOf[page]; taken || page < 0 {
			failf("page %d of node %d is also node %d's, or no page", page, id, owner)
		}
		w.pageOf[page] = id
	}
	w.path = append(w.path, n.tokens.Slice()...)
	w.mediaOf(id, depth)
	w.blocks(id)
	below := w.below(id, sum)
	if n.held < 0 || n.pins != int32(count(n.held > 0))+below {
		failf("node %d has %d pins, %d handles, %d children with pins", id, n.pins, n.held, below)
	}
	sum.count(n)
	if c.memory.Holds(&n.tokens) {
		w.arena += n.tokens.CapBytes()
	}
	w.leaves += count(n.isLeaf())
	w.tails += count(c.isTail(n))
	w.links += count(c.isLink(n))
	w.path, w.hashes = w.path[:depth], w.hashes[:blocks]
}

// below checks a node's children, and the private spaces that begin at the node's end. It
// returns how many of these children and spaces have pins.
func (w *walk) below(id NodeID, sum *tally) int32 {
	c, roots := w.c, w.roots[id]
	if n := int(c.anchors[id]); n != len(roots) || (c.nodes[id].flags&isAnchor != 0) != (n > 0) {
		failf("node %d has flags %b, %d private spaces, and namespaces at nodes %v", id, c.nodes[id].flags, n, roots)
	}
	w.anchors += count(len(roots) > 0)
	pins := w.children(id, sum)
	for _, root := range roots {
		pins += int32(count(w.space(root) > 0))
	}
	return pins
}

// blocks computes the hashes of the blocks that end in a node, compares them with the hashes
// that the node stores, and appends them to w.hashes.
func (w *walk) blocks(id NodeID) {
	c, n := w.c, &w.c.nodes[id]
	var have []kv.BlockHash
	if n.hashes != nil {
		if have = *n.hashes; len(have) == 0 {
			failf("node %d has an empty list of hashes", id)
		}
	}
	if !c.cfg.Events {
		if len(have) > 0 {
			failf("node %d has hashes, but events are off", id)
		}
		return
	}
	first, b := len(w.hashes), c.cfg.BlockTokens
	if (first+1)*b > len(w.path) && len(have) == 0 {
		return
	}
	hasher := *kv.NewHasher(n.space.ns, b)
	if first > 0 {
		hasher.Resume(w.hashes[first-1])
	}
	for i := first; (i+1)*b <= len(w.path); i++ {
		hash, _ := hasher.NextMedia(w.plain(w.path[i*b : (i+1)*b]))
		w.hashes = append(w.hashes, hash)
	}
	if !slices.Equal(have, w.hashes[first:]) {
		failf("node %d has hashes %v, want %v", id, have, w.hashes[first:])
	}
}

// slab checks that each slot of the slab is either reachable, free or an order's edge, and
// that the tables of spaces have exactly the spaces that the walk reached.
func (w *walk) slab() {
	c := w.c
	w.seen[Root] = true
	for _, o := range c.allOrders() {
		if o.edge == Root {
			continue
		}
		if int(o.edge) >= len(w.seen) || w.seen[o.edge] || c.nodes[o.edge].space != nil {
			failf("node %d is the edge of an order and in use, or of two", o.edge)
		}
		w.seen[o.edge] = true
	}
	for _, id := range c.free {
		if int(id) >= len(w.seen) || w.seen[id] || c.nodes[id].space != nil {
			failf("node %d is free and in use, or free twice", id)
		}
		w.seen[id] = true
	}
	for id, seen := range w.seen {
		if !seen {
			failf("node %d is neither reachable nor free", id)
		}
	}
	if w.living != len(c.alive) || w.anchors != len(c.anchors) || c.latest != nil && c.alive[spaceKey{c.latest.ns, Root}] != c.latest {
		failf("%d namespaces and %d anchors; reached %d, %d; last entered: %+v", len(c.alive), len(c.anchors), w.living, w.anchors, c.latest)
	}
}

// sums compares the cache's counts with those of the walk.
func (w *walk) sums() {
	c := w.c
	_, used := c.memory.Bytes()
	switch {
	case used != w.arena:
		failf("%d bytes of the arena are in use, the nodes have %d", used, w.arena)
	case w.all.evictable != c.evictable || w.all.protected != c.protected:
		failf("evictable %+v, protected %+v; counted %+v, %+v", c.evictable, c.protected, w.all.evictable, w.all.protected)
	case w.all.nodes != c.counts.Nodes || w.leaves != c.counts.Leaves || w.tails != c.counts.Tails:
		failf("%d nodes, %d leaves, %d tails; counted %d, %d, %d", c.counts.Nodes, c.counts.Leaves, c.counts.Tails, w.all.nodes, w.leaves, w.tails)
	case w.links != c.links.count || w.all.spaces != c.open:
		failf("%d links, %d open namespaces; counted %d, %d", c.links.count, c.open, w.links, w.all.spaces)
	}
}
