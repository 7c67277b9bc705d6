package radixcache

import (
	"fmt"
	"slices"
)

// fork checks the runs of a node's children: sizes, and keys and skips against
// the tokens. That the children ascend is for children to see.
func (w *walk) fork(id NodeID) error {
	c, n := w.c, &w.c.nodes[id]
	f := n.fork
	if f == nil {
		return nil
	}
	count, all := 0, slices.Collect(c.children(id))
	for _, kid := range all {
		if kid == Root || int(kid) >= len(c.nodes) {
			return fmt.Errorf("radixcache: child %d of node %d is unknown", kid, id)
		}
	}
	if f.skip < 0 {
		return fmt.Errorf("radixcache: the children of node %d skip %d tokens", id, f.skip)
	}
	for i, r := range f.runs {
		count += len(r.kids)
		if len(r.kids) == 0 || len(r.kids) > maxRun || i > 0 && len(f.runs[i-1].kids)+len(r.kids) <= mergeRun {
			return fmt.Errorf("radixcache: run %d of node %d has %d children, the run before is small too or there are none or too many", i, id, len(r.kids))
		}
		if shared := c.shared(r.kids[0].id, r.kids[len(r.kids)-1].id); r.skip < 0 || r.skip > shared || r.skip >= c.cfg.PageTokens {
			return fmt.Errorf("radixcache: run %d of node %d skips %d tokens, its children share %d", i, id, r.skip, shared)
		}
		for _, k := range r.kids {
			if want := c.keyOf(k.id, r.skip); k.key != want {
				return fmt.Errorf("radixcache: child %d of node %d has key %d, want %d", k.id, id, k.key, want)
			}
		}
		if f.keys != nil && (len(f.keys) != len(f.runs) || f.keys[i] != c.keyOf(r.kids[0].id, f.skip)) {
			return fmt.Errorf("radixcache: run %d of %d of node %d is not found by keys %v", i, len(f.runs), id, f.keys)
		}
	}
	switch {
	case n.only != Root || count < 2:
		return fmt.Errorf("radixcache: node %d has a fork of %d children, and child %d besides", id, count, n.only)
	case (f.keys == nil) != (len(f.runs) == 1):
		return fmt.Errorf("radixcache: node %d has %d runs of children, %d keys", id, len(f.runs), len(f.keys))
	case f.keys != nil && f.skip > c.shared(f.first(), f.last()):
		return fmt.Errorf("radixcache: the children of node %d skip %d tokens, they share %d", id, f.skip, c.shared(f.first(), f.last()))
	}
	return nil
}

// checkOrder checks that each node stands once in the order of eviction, where
// its stamp and its pins put it.
func (c *Cache) checkOrder() error {
	if len(c.line) != len(c.nodes) {
		return fmt.Errorf("radixcache: %d links for %d nodes", len(c.line), len(c.nodes))
	}
	inside, prev := 0, Root
	for id := c.line[Root].next; id != Root; prev, id = id, c.line[id].next {
		if inside++; int(id) >= len(c.nodes) || inside >= len(c.nodes) {
			return fmt.Errorf("radixcache: the line goes round, or to node %d", id)
		}
		n := &c.nodes[id]
		if n.queue != inLine || n.space == nil || n.parent == Root || c.line[id].prev != prev {
			return fmt.Errorf("radixcache: node %d after %d in the line has state %d, goes back to %d", id, prev, n.queue, c.line[id].prev)
		}
		if prev != Root && !c.standsBefore(prev, id) {
			return fmt.Errorf("radixcache: node %d, stamp %d, is before node %d, stamp %d", prev, c.nodes[prev].stamp, id, n.stamp)
		}
	}
	if c.line[Root].prev != prev {
		return fmt.Errorf("radixcache: the line ends at node %d, not %d", prev, c.line[Root].prev)
	}
	if err := c.checkHeap(); err != nil {
		return err
	}
	oldest := c.line[Root].next
	for id := range c.nodes {
		n := &c.nodes[id]
		if n.space == nil || n.parent == Root {
			continue
		}
		if n.queue == inLine {
			inside--
			continue
		}
		if n.queue == nowhere || n.queue < nowhere || (n.queue == parked) != (n.pins > 0) {
			return fmt.Errorf("radixcache: node %d with %d pins has state %d", id, n.pins, n.queue)
		}
		if oldest != Root && !c.standsBefore(NodeID(id), oldest) {
			return fmt.Errorf("radixcache: node %d, stamp %d, is not in the line, which starts at stamp %d", id, n.stamp, c.nodes[oldest].stamp)
		}
	}
	if inside != 0 {
		return fmt.Errorf("radixcache: %d nodes too many in the line", inside)
	}
	return nil
}

// standsBefore tells whether a is to be evicted before b.
func (c *Cache) standsBefore(a, b NodeID) bool {
	m, n := &c.nodes[a], &c.nodes[b]
	return lateKey{m.stamp, a, m.start}.less(lateKey{n.stamp, b, n.start})
}

// checkHeap checks that the heap is one and holds unpinned nodes that know
// their places.
func (c *Cache) checkHeap() error {
	for i, k := range c.heap {
		if int(k.id) >= len(c.nodes) || int(c.nodes[k.id].queue) != i {
			return fmt.Errorf("radixcache: heap entry %d is node %d, which stands elsewhere", i, k.id)
		}
		n := &c.nodes[k.id]
		if n.stamp != k.stamp || n.start != k.start || n.pins != 0 || n.space == nil || n.parent == Root {
			return fmt.Errorf("radixcache: heap entry %d: node %d has stamp %d (heap: %d), start %d (heap: %d), %d pins", i, k.id, n.stamp, k.stamp, n.start, k.start, n.pins)
		}
		if i > 0 && k.less(c.heap[(i-1)/2]) {
			return fmt.Errorf("radixcache: heap entry %d, stamp %d, is below stamp %d", i, k.stamp, c.heap[(i-1)/2].stamp)
		}
	}
	return nil
}
