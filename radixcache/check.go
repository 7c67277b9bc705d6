package radixcache

import (
	"errors"
	"fmt"
	"slices"

	"github.com/coppice-llm/coppice/kv"
)

// Check walks the whole tree and all flushed trees. It returns an error with the values
// that break an invariant, or nil if all invariants hold. The tests plant a fault of each
// kind, and Check must find it. Cost: it reads all nodes and tokens and computes all
// hashes. Under -tags invariants it runs after each mutation.
func (c *Cache) Check() error {
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
		if _, err := w.space(root); err != nil {
			return err
		}
	}
	return errors.Join(w.slab(), w.sums(), w.media(), w.prefixes(), w.eviction(), w.queues(), w.doubts())
}

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

	orders map[*order]*tally
	all    tally
	arena  int // bytes of the arena that the nodes' tokens use
	leaves int
	tails  int
	links  int
	living int // spaces found that are not flushed
	doors  int // nodes at which private spaces begin
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
func (w *walk) space(root NodeID) (int32, error) {
	c, n := w.c, &w.c.nodes[root]
	sp := n.space
	if err := w.spaceAlone(root, sp); err != nil {
		return 0, err
	}
	w.seen[root] = true
	sum := tally{spaces: 1}
	pins, err := w.children(root, &sum)
	if err != nil {
		return 0, err
	}
	switch {
	case n.pins != pins:
		return 0, fmt.Errorf("radixcache: root %d of namespace %+v has %d pins, %d below", root, sp.ns, n.pins, pins)
	case !sp.dead:
		w.living++
	}
	if w.orders[sp.order] == nil {
		w.orders[sp.order] = &tally{}
	}
	w.orders[sp.order].add(sum)
	w.all.add(sum)
	if sp.anchor == Root && c.latest == sp && sp.dead {
		return 0, fmt.Errorf("radixcache: namespace %+v was flushed and is still the one entered last", sp.ns)
	}
	return pins, nil
}

// spaceAlone checks the fields of a space and of its root, but not the nodes below.
func (w *walk) spaceAlone(root NodeID, sp *space) error {
	c, n := w.c, &w.c.nodes[root]
	found := c.alive[spaceKey{sp.ns, sp.anchor}]
	switch {
	case sp.root != root || sp.anchor != n.parent || w.seen[root]:
		return fmt.Errorf("radixcache: namespace %+v at node %d has root %d, not %d at node %d", sp.ns, sp.anchor, sp.root, root, n.parent)
	case n.tokens.Len()+n.pages.Len() > 0 || n.hashes != nil || n.held != 0 || n.flags&^isRoot != 0 || int(n.start) != len(w.path):
		return fmt.Errorf("radixcache: root %d of namespace %+v is not empty, has %d handles, flags %b, or starts at %d, not %d", root, sp.ns, n.held, n.flags, n.start, len(w.path))
	case n.isLeaf():
		return fmt.Errorf("radixcache: namespace %+v at node %d holds nothing but is still there", sp.ns, sp.anchor)
	case (found == sp) == sp.dead:
		return fmt.Errorf("radixcache: namespace %+v at node %d, flushed: %v, found: %v", sp.ns, sp.anchor, sp.dead, found == sp)
	case n.stamp > c.clock:
		return fmt.Errorf("radixcache: root %d has stamp %d, the clock is at %d", root, n.stamp, c.clock)
	case sp.order == nil || sp.order.dead != sp.dead || !sp.dead && sp.order.quota != c.quotas[sp.ns]:
		return fmt.Errorf("radixcache: namespace %+v at node %d, flushed: %v, stands in the wrong order", sp.ns, sp.anchor, sp.dead)
	}
	if sp.anchor == Root {
		return nil
	}
	public, outer := c.nodes[sp.anchor].space, sp.ns
	outer.Salt = ""
	if sp.ns.Salt == "" || public.ns != outer || public.anchor != Root || public.dead != sp.dead {
		return fmt.Errorf("radixcache: namespace %+v, flushed: %v, begins at node %d of namespace %+v, flushed: %v", sp.ns, sp.dead, sp.anchor, public.ns, public.dead)
	}
	return nil
}

// children checks the nodes below node id that are in its space, and adds them to sum. It
// returns how many children of the node have pins. Children must ascend by first page, and
// no two may have the same first page.
func (w *walk) children(id NodeID, sum *tally) (int32, error) {
	c := w.c
	if err := w.fork(id); err != nil {
		return 0, err
	}
	var pins int32
	before := Root
	for kid := range c.children(id) {
		if w.seen[kid] {
			return 0, fmt.Errorf("radixcache: child %d of node %d is linked twice", kid, id)
		}
		w.seen[kid] = true
		if err := w.node(id, kid, sum); err != nil {
			return 0, err
		}
		if before != Root && slices.Compare(c.firstPage(before), c.firstPage(kid)) >= 0 {
			return 0, fmt.Errorf("radixcache: children %d, %d of node %d are out of order: %v, %v", before, kid, id, c.firstPage(before), c.firstPage(kid))
		}
		before = kid
		pins += int32(count(c.nodes[kid].pins > 0))
	}
	return pins, nil
}

// node checks node id, a child of parent, and everything below it, and adds them to sum. A
// node must begin where its parent ends, have as many pages as its tokens need, share no
// page with another node, and have the right number of pins.
func (w *walk) node(parent, id NodeID, sum *tally) error {
	c, n, p := w.c, &w.c.nodes[id], &w.c.nodes[parent]
	depth, blocks := len(w.path), len(w.hashes)
	switch {
	case n.parent != parent || n.space != p.space || n.flags&isRoot != 0:
		return fmt.Errorf("radixcache: node %d below %d has parent %d, flags %b, or another namespace", id, parent, n.parent, n.flags)
	case int(n.start) != depth || p.end() != depth:
		return fmt.Errorf("radixcache: node %d starts at %d, its parent %d ends at %d", id, n.start, parent, depth)
	case n.tokens.Len() == 0 || n.pages.Len() != kv.CeilPages(n.tokens.Len(), c.cfg.PageTokens):
		return fmt.Errorf("radixcache: node %d has %d tokens in %d pages", id, n.tokens.Len(), n.pages.Len())
	case c.isTail(n) && (n.tokens.Len() > c.cfg.PageTokens || !n.isLeaf()):
		return fmt.Errorf("radixcache: node %d has %d tokens, no whole pages, and something below", id, n.tokens.Len())
	case n.stamp > c.clock:
		return fmt.Errorf("radixcache: node %d has stamp %d, the clock is at %d", id, n.stamp, c.clock)
	}
	for _, page := range n.pages.Slice() {
		if owner, taken := w.pageOf[page]; taken || page < 0 {
			return fmt.Errorf("radixcache: page %d of node %d is also node %d's, or no page", page, id, owner)
		}
		w.pageOf[page] = id
	}
	w.path = append(w.path, n.tokens.Slice()...)
	if err := errors.Join(w.mediaOf(id, depth), w.blocks(id)); err != nil {
		return err
	}
	below, err := w.below(id, sum)
	if err != nil {
		return err
	}
	if n.held < 0 || n.pins != int32(count(n.held > 0))+below {
		return fmt.Errorf("radixcache: node %d has %d pins, %d handles, %d children with pins", id, n.pins, n.held, below)
	}
	sum.count(n)
	if c.memory.Holds(&n.tokens) {
		w.arena += n.tokens.CapBytes()
	}
	w.leaves += count(n.isLeaf())
	w.tails += count(c.isTail(n))
	w.links += count(c.isLink(n))
	w.path, w.hashes = w.path[:depth], w.hashes[:blocks]
	return nil
}

// below checks a node's children, and the private spaces that begin at the node's end. It
// returns how many of these children and spaces have pins.
func (w *walk) below(id NodeID, sum *tally) (int32, error) {
	c, roots := w.c, w.roots[id]
	if doors := int(c.doors[id]); doors != len(roots) || (c.nodes[id].flags&hasDoors != 0) != (doors > 0) {
		return 0, fmt.Errorf("radixcache: node %d has flags %b, %d doors, and namespaces at nodes %v", id, c.nodes[id].flags, doors, roots)
	}
	w.doors += count(len(roots) > 0)
	pins, err := w.children(id, sum)
	for _, root := range roots {
		if err != nil {
			return 0, err
		}
		var inside int32
		inside, err = w.space(root)
		pins += int32(count(inside > 0))
	}
	return pins, err
}

// blocks computes the hashes of the blocks that end in a node, compares them with the hashes
// that the node stores, and appends them to w.hashes.
func (w *walk) blocks(id NodeID) error {
	c, n := w.c, &w.c.nodes[id]
	var have []kv.BlockHash
	if n.hashes != nil {
		if have = *n.hashes; len(have) == 0 {
			return fmt.Errorf("radixcache: node %d has an empty list of hashes", id)
		}
	}
	if !c.cfg.Events {
		if len(have) > 0 {
			return fmt.Errorf("radixcache: node %d has hashes, but events are off", id)
		}
		return nil
	}
	first, b := len(w.hashes), c.cfg.BlockTokens
	if (first+1)*b > len(w.path) && len(have) == 0 {
		return nil
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
		return fmt.Errorf("radixcache: node %d has hashes %v, want %v", id, have, w.hashes[first:])
	}
	return nil
}

// slab checks that each slot of the slab is either reachable, free or an order's edge, and
// that the tables of spaces have exactly the spaces that the walk reached.
func (w *walk) slab() error {
	c := w.c
	w.seen[Root] = true
	for _, o := range c.allOrders() {
		if o.edge == Root {
			continue
		}
		if int(o.edge) >= len(w.seen) || w.seen[o.edge] || c.nodes[o.edge].space != nil {
			return fmt.Errorf("radixcache: node %d is the edge of an order and in use, or of two", o.edge)
		}
		w.seen[o.edge] = true
	}
	for _, id := range c.free {
		if int(id) >= len(w.seen) || w.seen[id] || c.nodes[id].space != nil {
			return fmt.Errorf("radixcache: node %d is free and in use, or free twice", id)
		}
		w.seen[id] = true
	}
	for id, seen := range w.seen {
		if !seen {
			return fmt.Errorf("radixcache: node %d is neither reachable nor free", id)
		}
	}
	if w.living != len(c.alive) || w.doors != len(c.doors) || c.latest != nil && c.alive[spaceKey{c.latest.ns, Root}] != c.latest {
		return fmt.Errorf("radixcache: %d namespaces and %d nodes with doors; reached %d, %d; last entered: %+v", len(c.alive), len(c.doors), w.living, w.doors, c.latest)
	}
	return nil
}

// sums compares the cache's counts with those of the walk.
func (w *walk) sums() error {
	c := w.c
	_, used := c.memory.Bytes()
	switch {
	case used != w.arena:
		return fmt.Errorf("radixcache: %d bytes of the arena are in use, the nodes have %d", used, w.arena)
	case w.all.evictable != c.evictable || w.all.protected != c.protected:
		return fmt.Errorf("radixcache: evictable %+v, protected %+v; counted %+v, %+v", c.evictable, c.protected, w.all.evictable, w.all.protected)
	case w.all.nodes != c.counts.Nodes || w.leaves != c.counts.Leaves || w.tails != c.counts.Tails:
		return fmt.Errorf("radixcache: %d nodes, %d leaves, %d tails; counted %d, %d, %d", c.counts.Nodes, c.counts.Leaves, c.counts.Tails, w.all.nodes, w.leaves, w.tails)
	case w.links != c.links.count || w.all.spaces != c.open:
		return fmt.Errorf("radixcache: %d links, %d open namespaces; counted %d, %d", c.links.count, c.open, w.links, w.all.spaces)
	}
	return nil
}
