package radixcache

import (
	"errors"
	"fmt"
	"slices"

	"github.com/coppice-llm/coppice/kv"
)

// Check walks everything and reports the first broken invariant, with the
// values in it; nil if all hold. Cost: all nodes, tokens and hashes. Under
// -tags invariants it runs after each mutation.
func (c *Cache) Check() error {
	w := walk{c: c, seen: make([]bool, len(c.nodes)), pageOf: map[kv.PageID]NodeID{}}
	for ns, sp := range c.spaces { // any order: only finds faults
		if err := w.space(ns, sp); err != nil {
			return err
		}
	}
	return errors.Join(w.slab(), w.sums(), c.checkOrder())
}

// walk is the state of one Check.
type walk struct {
	c      *Cache
	seen   []bool               // by NodeID: reachable or free
	pageOf map[kv.PageID]NodeID // owner of each page
	path   []kv.Token           // from token 0 to the node in hand
	hashes []kv.BlockHash       // of the blocks of path

	evictable, protected size
	nodes, leaves, tails int
}

func (w *walk) space(ns kv.Namespace, sp *space) error {
	if sp == nil || int(sp.root) >= len(w.c.nodes) || sp.root == Root {
		return fmt.Errorf("radixcache: namespace %+v has no root", ns)
	}
	n := &w.c.nodes[sp.root]
	switch {
	case sp.ns != ns || n.space != sp || n.parent != Root:
		return fmt.Errorf("radixcache: namespace %+v has root %d of %+v", ns, sp.root, sp.ns)
	case len(n.tokens)+len(n.pages)+len(n.hashes) > 0 || n.pins != 0 || n.held != 0 || n.queue != nowhere:
		return fmt.Errorf("radixcache: root %d of namespace %+v is not empty", sp.root, ns)
	case n.isLeaf():
		return fmt.Errorf("radixcache: namespace %+v holds nothing but is still there", ns)
	case w.seen[sp.root]:
		return fmt.Errorf("radixcache: root %d serves two namespaces", sp.root)
	}
	w.seen[sp.root] = true
	w.path, w.hashes = w.path[:0], w.hashes[:0]
	_, err := w.children(sp.root)
	return err
}

// children checks what hangs below id and returns the sum of its pins.
func (w *walk) children(id NodeID) (int32, error) {
	c := w.c
	if err := w.fork(id); err != nil {
		return 0, err
	}
	var pins int32
	before := Root
	for kid := range c.children(id) {
		if kid == Root || int(kid) >= len(c.nodes) || w.seen[kid] {
			return 0, fmt.Errorf("radixcache: child %d of node %d is unknown or linked twice", kid, id)
		}
		w.seen[kid] = true
		if err := w.node(id, kid); err != nil {
			return 0, err
		}
		if before != Root && slices.Compare(c.firstPage(before), c.firstPage(kid)) >= 0 {
			return 0, fmt.Errorf("radixcache: children %d, %d of node %d are out of order: %v, %v", before, kid, id, c.firstPage(before), c.firstPage(kid))
		}
		before = kid
		pins += c.nodes[kid].pins
	}
	return pins, nil
}

func (w *walk) node(parent, id NodeID) error {
	c, n, p := w.c, &w.c.nodes[id], &w.c.nodes[parent]
	depth, blocks := len(w.path), len(w.hashes)
	switch {
	case n.parent != parent || n.space != p.space:
		return fmt.Errorf("radixcache: node %d below %d has parent %d or another namespace", id, parent, n.parent)
	case int(n.start) != depth || p.end() != depth:
		return fmt.Errorf("radixcache: node %d starts at %d, its parent %d ends at %d", id, n.start, parent, depth)
	case len(n.tokens) == 0 || len(n.pages) != kv.CeilPages(len(n.tokens), c.cfg.PageTokens):
		return fmt.Errorf("radixcache: node %d has %d tokens in %d pages", id, len(n.tokens), len(n.pages))
	case c.isTail(n) && (len(n.tokens) > c.cfg.PageTokens || !n.isLeaf()):
		return fmt.Errorf("radixcache: node %d has %d tokens, no whole pages, and children %v", id, len(n.tokens), slices.Collect(c.children(id)))
	case n.stamp > c.clock || !c.isSpaceRoot(parent) && n.stamp > p.stamp:
		return fmt.Errorf("radixcache: node %d has stamp %d, its parent %d, the clock %d", id, n.stamp, p.stamp, c.clock)
	}
	for _, page := range n.pages {
		if owner, taken := w.pageOf[page]; taken || page < 0 {
			return fmt.Errorf("radixcache: page %d of node %d is also node %d's, or no page", page, id, owner)
		}
		w.pageOf[page] = id
	}
	w.path = append(w.path, n.tokens...)
	if err := w.blocks(id); err != nil {
		return err
	}
	below, err := w.children(id)
	if err != nil {
		return err
	}
	if n.held < 0 || n.pins != n.held+below {
		return fmt.Errorf("radixcache: node %d has %d pins, %d held here, %d below", id, n.pins, n.held, below)
	}
	w.count(n)
	w.path, w.hashes = w.path[:depth], w.hashes[:blocks]
	return nil
}

// blocks hashes anew what ends in a node and compares.
func (w *walk) blocks(id NodeID) error {
	c, n := w.c, &w.c.nodes[id]
	if !c.cfg.Events {
		if len(n.hashes) > 0 {
			return fmt.Errorf("radixcache: node %d has hashes, but events are off", id)
		}
		return nil
	}
	first, b := len(w.hashes), c.cfg.BlockTokens
	hasher := *kv.NewHasher(n.space.ns, b)
	if first > 0 {
		hasher.Resume(w.hashes[first-1])
	}
	for i := first; (i+1)*b <= len(w.path); i++ {
		hash, _ := hasher.Next(w.path[i*b : (i+1)*b])
		w.hashes = append(w.hashes, hash)
	}
	if !slices.Equal(n.hashes, w.hashes[first:]) {
		return fmt.Errorf("radixcache: node %d has hashes %v, want %v", id, n.hashes, w.hashes[first:])
	}
	return nil
}

func (w *walk) count(n *node) {
	w.nodes++
	if n.pins > 0 {
		w.protected.add(n, 1)
	} else {
		w.evictable.add(n, 1)
	}
	if !n.isLeaf() {
		return
	}
	w.leaves++
	if w.c.isTail(n) {
		w.tails++
	}
}

// slab checks that each slot is either reachable or free, and not both.
func (w *walk) slab() error {
	for _, id := range w.c.free {
		if id == Root || int(id) >= len(w.seen) || w.seen[id] || w.c.nodes[id].space != nil {
			return fmt.Errorf("radixcache: node %d is free and in use, or free twice", id)
		}
		w.seen[id] = true
	}
	for id := 1; id < len(w.seen); id++ {
		if !w.seen[id] {
			return fmt.Errorf("radixcache: node %d is neither reachable nor free", id)
		}
	}
	return nil
}

func (w *walk) sums() error {
	c := w.c
	switch {
	case w.evictable != c.evictable || w.protected != c.protected:
		return fmt.Errorf("radixcache: evictable %+v, protected %+v; counted %+v, %+v", c.evictable, c.protected, w.evictable, w.protected)
	case w.nodes != c.counts.Nodes || w.leaves != c.counts.Leaves || w.tails != c.counts.Tails:
		return fmt.Errorf("radixcache: %d nodes, %d leaves, %d tails; counted %d, %d, %d", c.counts.Nodes, c.counts.Leaves, c.counts.Tails, w.nodes, w.leaves, w.tails)
	}
	return nil
}
