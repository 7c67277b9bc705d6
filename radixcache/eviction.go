package radixcache

import "slices"

// eviction is the layer above the slab that keeps the orders in which leaves are
// evicted.
//
// Under LRU nothing is searched. The line of an order holds leaves by rising stamp.
// A walk puts the leaf at which it ends at the line's back. A leaf that is pinned, or
// grows children, stays where it is until it comes to the front, and leaves the
// line then. One that comes in with a stamp of some time ago, as it was pinned
// meanwhile or has lost its last child, goes to the front if it is older than
// all in the line, as is the parent of a leaf that was just evicted, or else to
// the late heap. So each eviction takes the older of two.
//
// Under the other policies there is a heap by rank, and the line is kept only
// for the sake of a TTL.
type eviction struct {
	slab
	by      ranking
	ranked  bool              // leaves stand in heaps by rank; otherwise age decides
	line    []lineLink        // by NodeID
	places  [heapKinds]places // by NodeID: index in the heap of that kind, or nowhere
	common  *order            // of all namespaces without a quota
	tenants []*order          // with one, alive, in the order of their first Insert
	dead    []*order          // flushed
	clock   uint64            // accesses so far; the stamp of the latest walk
}

// The heaps that a node can be in, by the index in eviction.places.
const (
	byAge = iota
	byRank
	heapKinds
)

func newEviction(cfg Config) eviction {
	by := newRanking(cfg)
	e := eviction{slab: slab{cfg: cfg, nodes: make([]node, 1)}, line: make([]lineLink, 1), by: by, ranked: !by.ranksByAge()}
	e.places[byAge] = places{nowhere}
	if e.ranked {
		e.places[byRank] = places{nowhere}
	}
	e.common = e.newOrder(Root)
	return e
}

// newNode takes a slot for n, in the orders' tables too. It may move the slab: no
// *node survives it.
func (e *eviction) newNode(n *node) NodeID {
	id := e.newSlot(n)
	if int(id) == len(e.line) {
		e.line = append(e.line, lineLink{})
		e.places[byAge] = append(e.places[byAge], nowhere)
		if e.ranked {
			e.places[byRank] = append(e.places[byRank], nowhere)
		}
	}
	return id
}

func (e *eviction) newOrder(edge NodeID) *order {
	e.line[edge] = lineLink{edge, edge}
	return &order{edge: edge}
}

// dropOrder forgets an order that no space uses any more.
func (e *eviction) dropOrder(o *order) {
	if o == e.common {
		return
	}
	if o.dead {
		e.dead = slices.DeleteFunc(e.dead, func(other *order) bool { return other == o })
	} else {
		e.tenants = slices.DeleteFunc(e.tenants, func(other *order) bool { return other == o })
	}
	if o.edge != Root {
		e.freeNode(o.edge)
	}
}

// byLine reports whether the line is in use.
func (e *eviction) byLine() bool { return !e.ranked || e.cfg.TTL > 0 }

// lineInsert puts a node right after another, or first after the edge.
func (e *eviction) lineInsert(after, id NodeID) {
	next := e.line[after].next
	e.line[id] = lineLink{after, next}
	e.line[after].next, e.line[next].prev = id, id
	e.nodes[id].flags |= inLine
}

func (e *eviction) lineRemove(id NodeID) {
	l := e.line[id]
	e.line[l.prev].next, e.line[l.next].prev = l.next, l.prev
	e.nodes[id].flags &^= inLine
}

// rank is what a leaf stands by in a heap: the lowest goes first.
func (e *eviction) rank(n *node) uint64 { return e.by.rank(&n.use, n.end()) }

// enlist puts an unpinned leaf where its stamp and its rank belong.
func (e *eviction) enlist(id NodeID) {
	n := &e.nodes[id]
	o := n.space.order
	if e.ranked {
		o.ranked.put(e.places[byRank], heapKey{e.rank(n), n.stamp, id})
	}
	if !e.byLine() || n.flags&inLine != 0 || e.places[byAge][id] != nowhere {
		return
	}
	switch ends := e.line[o.edge]; {
	case ends.prev == o.edge || e.nodes[ends.prev].stamp <= n.stamp:
		e.lineInsert(ends.prev, id)
	case n.stamp <= e.nodes[ends.next].stamp:
		e.lineInsert(o.edge, id)
	default:
		o.late.put(e.places[byAge], heapKey{n.stamp, n.stamp, id})
	}
}

// unheap takes a node that is no leaf any more, or is pinned, out of the heaps.
// In the line it may stay.
func (e *eviction) unheap(id NodeID) {
	o := e.nodes[id].space.order
	if len(o.late.Items) > 0 {
		o.late.take(e.places[byAge], id)
	}
	if e.ranked {
		o.ranked.take(e.places[byRank], id)
	}
}

// delist takes a node out of its order.
func (e *eviction) delist(id NodeID) {
	e.unheap(id)
	if e.nodes[id].flags&inLine != 0 {
		e.lineRemove(id)
	}
}

// rerank puts a node in the place that its new length, or a reuse, gives it.
func (e *eviction) rerank(id NodeID) {
	if e.ranked && e.places[byRank][id] != nowhere {
		e.enlist(id)
	}
}

// touch makes a node, or that at which a space begins, and with it the path to
// its root, as recent as the running walk.
func (e *eviction) touch(id NodeID) {
	if id = e.outer(id); id == Root {
		return
	}
	n := &e.nodes[id]
	e.delist(id)
	n.stamp = e.clock
	if e.ranked {
		e.by.used(&n.use)
	}
	if n.pins == 0 && n.isLeaf() {
		e.enlist(id)
	}
}

// absorb hands a node what its child, which is being removed, knew of the walks
// through both.
func (e *eviction) absorb(parent, child NodeID) {
	p, n := &e.nodes[parent], &e.nodes[child]
	if n.stamp > p.stamp {
		if p.flags&inLine != 0 {
			e.lineRemove(parent) // it stood there by its own
		}
		p.stamp = n.stamp
	}
	p.reused(n.hits)
	p.prio = max(p.prio, n.prio)
	if e.ranked {
		e.by.absorb(&p.use, &n.use, !p.isLeaf())
	}
}

// oldest is the least recent unpinned leaf, Root if there is none.
func (e *eviction) oldest(o *order) NodeID {
	first := Root
	for first == Root {
		id := e.line[o.edge].next
		if id == o.edge {
			break
		}
		if n := &e.nodes[id]; n.pins == 0 && n.isLeaf() {
			first = id
		} else {
			e.lineRemove(id)
		}
	}
	if len(o.late.Items) > 0 && (first == Root || o.late.Items[0].key < e.nodes[first].stamp) {
		return o.late.Items[0].id
	}
	return first
}

// victim is the next leaf to evict, Root if there is none.
func (e *eviction) victim(o *order) NodeID {
	if !e.ranked {
		return e.oldest(o)
	}
	if len(o.ranked.Items) == 0 {
		return Root
	}
	return o.ranked.Items[0].id
}

// weaker reports whether a goes before b, of another order.
func (e *eviction) weaker(a, b NodeID) bool {
	m, n := &e.nodes[a], &e.nodes[b]
	if !e.ranked {
		return m.stamp < n.stamp
	}
	return heapKey{e.rank(m), m.stamp, a}.Before(heapKey{e.rank(n), n.stamp, b})
}
