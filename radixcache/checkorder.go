package radixcache

import "slices"

// allOrders returns the orders in use: first the common order, then those of namespaces
// with a quota, then those of flushed trees.
func (e *eviction) allOrders() []*order {
	return slices.Concat([]*order{e.common}, e.tenants, e.dead)
}

// eviction checks the orders: their counts, and that every unpinned leaf is in the heaps
// and the line where enlist puts it. Other nodes must be in no heap, but may be in a line:
// oldest removes them when they come to the line's front.
func (w *walk) eviction() {
	c := w.c
	for kind, places := range c.places {
		unused := kind == byRank && !c.ranked || kind == byDue && c.turns.by == nil
		if want := len(c.nodes); len(places) != want && !(unused && places == nil) || len(c.line) != want {
			failf("%d links, %d places for %d nodes", len(c.line), len(places), want)
		}
	}
	w.turns()
	inLines := 0
	for i, o := range c.allOrders() {
		w.orderAlone(i, o)
		n := c.checkLine(o)
		inLines += n
		c.checkHeap(o, &o.late, byAge)
		c.checkHeap(o, &o.ranked, byRank)
		delete(w.orders, o)
	}
	if len(w.orders) > 0 {
		failf("namespaces stand in %d orders that are not in use", len(w.orders))
	}
	for id := range c.nodes {
		c.checkListed(NodeID(id))
		inLines -= count(c.nodes[id].flags&inLine != 0)
	}
	if inLines != 0 {
		failf("the lines hold %d nodes more than say so", inLines)
	}
}

// orderAlone checks an order's fields and counts; i is its index in allOrders.
func (w *walk) orderAlone(i int, o *order) {
	c, sum := w.c, w.orders[o]
	if sum == nil {
		sum = &tally{}
	}
	tenant := i > 0 && i <= len(c.tenants)
	pages := sum.evictable.pages + sum.protected.pages
	switch {
	case o.dead != (i > len(c.tenants)) || tenant != (o.quota != nil) && !o.dead:
		failf("order %d of %d has quota %v, flushed: %v", i, len(c.tenants), o.quota, o.dead)
	case o.pages != pages || o.spaces != sum.spaces || o != c.common && o.spaces == 0:
		failf("order %d has %d pages, %d namespaces; counted %d, %d", i, o.pages, o.spaces, pages, sum.spaces)
	case o.edge == Root && o != c.common && !o.dead:
		failf("order %d has no edge", i)
	}
}

// checkLine checks that the links of an order's line agree and that its stamps rise. It
// returns the number of nodes in the line.
func (e *eviction) checkLine(o *order) int {
	length, prev := 0, o.edge
	for id := e.line[o.edge].next; id != o.edge; prev, id = id, e.line[id].next {
		if length++; int(id) >= len(e.nodes) || length > len(e.nodes) {
			failf("the line at %d goes round, or to node %d", o.edge, id)
		}
		n := &e.nodes[id]
		if n.space == nil || n.space.order != o || n.flags&inLine == 0 || n.flags&isRoot != 0 || e.line[id].prev != prev {
			failf("node %d after %d in the line at %d has flags %b, goes back to %d, or is not of this order", id, prev, o.edge, n.flags, e.line[id].prev)
		}
		if prev != o.edge && e.nodes[prev].stamp > n.stamp {
			failf("node %d, stamp %d, is in the line before node %d, stamp %d", prev, e.nodes[prev].stamp, id, n.stamp)
		}
	}
	if e.line[o.edge].prev != prev || length > 0 && !e.byLine() {
		failf("the line at %d ends at node %d, not %d, or is not in use", o.edge, prev, e.line[o.edge].prev)
	}
	return length
}

// checkHeap checks heap h of an order: that no entry comes before its parent entry, that
// places[kind] has the index of each entry, and that the copied ranks and stamps are those
// of the nodes.
func (e *eviction) checkHeap(o *order, h *leafHeap, kind int) {
	for i, k := range h.Items {
		if int(k.id) >= len(e.nodes) || e.places[kind] == nil || int(e.places[kind][k.id]) != i {
			failf("entry %d of heap %d is node %d, which stands elsewhere", i, kind, k.id)
		}
		n := &e.nodes[k.id]
		if n.space == nil || n.space.order != o {
			failf("entry %d of heap %d is node %d, of another order", i, kind, k.id)
		}
		want := heapKey{n.stamp, n.stamp, k.id}
		if kind == byRank {
			want.key = e.rank(n)
		}
		if k != want {
			failf("entry %d of heap %d is %+v, node %d now %+v", i, kind, k, k.id, want)
		}
		if i > 0 && k.Before(h.Items[(i-1)/2]) {
			failf("entry %d of heap %d, %+v, is below %+v", i, kind, k, h.Items[(i-1)/2])
		}
	}
}

// checkListed checks that the node in a slot is in the heaps and lines where it should be,
// and in no other.
func (e *eviction) checkListed(id NodeID) {
	n := &e.nodes[id]
	var in [heapKinds]bool
	for kind, places := range e.places {
		if places == nil {
			continue
		}
		at := int(places[id])
		if in[kind] = at != nowhere; !in[kind] {
			continue
		}
		if n.space == nil {
			failf("node %d is not in use but in heap %d at %d", id, kind, at)
		}
		h := [heapKinds]*leafHeap{&n.space.order.late, &n.space.order.ranked, &e.turns.due}[kind]
		if at < 0 || at >= len(h.Items) || h.Items[at].id != id {
			failf("node %d is not at %d in heap %d", id, at, kind)
		}
	}
	leaf := n.space != nil && n.flags&isRoot == 0 && n.pins == 0 && n.isLeaf()
	waits := n.flags&inLine != 0 // true also for nodes that are no longer leaves
	switch {
	case in[byRank] != (leaf && e.ranked), in[byDue] != (leaf && e.turns.by != nil), in[byAge] && (!leaf || waits), leaf && e.byLine() && !in[byAge] && !waits:
		failf("node %d, a leaf to evict: %v; by rank: %v, by age: %v, in line: %v", id, leaf, in[byRank], in[byAge], waits)
	}
}

// queues checks that each node with the flag queued is in one queue, once, and that every
// unpinned link is queued.
func (w *walk) queues() {
	c := w.c
	found := make([]bool, len(c.nodes))
	for _, queue := range [][]linkID{c.links.loose, c.links.stiff} {
		for _, l := range queue {
			if int(l.id) >= len(c.nodes) || l.gen > c.nodes[l.id].gen || c.cfg.WholeLeaves {
				failf("link %+v was never there, or links are not joined", l)
			}
			if l.gen < c.nodes[l.id].gen {
				continue
			}
			if found[l.id] {
				failf("link %d is queued twice", l.id)
			}
			found[l.id] = true
		}
	}
	for id := range c.nodes {
		n := &c.nodes[id]
		if (n.flags&queued != 0) != found[id] {
			failf("node %d has flags %b, queued: %v", id, n.flags, found[id])
		}
		if !found[id] && n.space != nil && n.pins == 0 && c.isLink(n) && !c.cfg.WholeLeaves {
			failf("link %d is not queued", id)
		}
	}
}
