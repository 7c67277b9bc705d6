package radixcache

import (
	"math"
	"slices"
)

// eviction is the layer above the slab that keeps the orders in which leaves are
// evicted.
//
// Under LRU no eviction searches. Each order has a line: a doubly linked list of leaves
// by rising stamp. A walk puts the leaf at which it ends at the line's back. A leaf in
// the line that is pinned or gets children stays in the line until it comes to the
// front, and is removed from the line then.
//
// A leaf may also enter its order with an old stamp: it was pinned for some time, or it
// was a parent and lost its last child. If its stamp is at most that of the line's
// front, it goes to the front; that is the usual case, as the child that was just
// evicted was the oldest leaf. Otherwise it goes into a small heap (order.late), and each
// eviction takes the older of the line's front and the heap's top.
//
// Example: leaves A, B, C have stamps 3, 5, 9, and parent P of A has stamp 2. Evicting A
// makes P a leaf with A's stamp 3 (absorb). P goes to the front, so it is evicted next.
//
// Under the other policies each order has a heap of leaves by rank. Then the line is
// kept only with a Config.TTL, because Expire removes nodes by age.
type eviction struct {
	slab
	by      ranking           // the policy
	ranked  bool              // whether leaves are in heaps by rank; otherwise age decides
	line    []lineLink        // by NodeID: a node's neighbours in its order's line
	places  [heapKinds]places // by kind of heap and NodeID: index in the heap, or nowhere
	common  *order            // order of all namespaces without a quota
	tenants []*order          // orders of namespaces with a quota that hold nodes, oldest order first
	dead    []*order          // orders of flushed trees that still hold nodes
	turns   turns             // where sessions end, under the policy Session
	clock   uint64            // number of accesses; the stamp of the latest walk
}

// The heaps that a node can be in, by the index in eviction.places.
const (
	byAge = iota
	byRank
	byDue // the heap turns.due, of all orders
	heapKinds
)

func newEviction(cfg Config) eviction {
	by := policies[cfg.Policy].ranks(cfg)
	e := eviction{slab: slab{cfg: cfg, nodes: make([]node, 1)}, line: make([]lineLink, 1), by: by, ranked: !by.ranksByAge()}
	e.places[byAge] = places{nowhere}
	if e.ranked {
		e.places[byRank] = places{nowhere}
	}
	if s, ok := by.(*sessionRanking); ok {
		e.turns = turns{by: s, ends: make(map[SessionID]*turnEnd)}
		e.places[byDue] = places{nowhere}
	}
	e.common = e.newOrder(Root)
	return e
}

// newNode stores n in a slot of the slab, makes each table by NodeID long enough for
// it, and returns its id. It may move the slab, so pointers to nodes taken before are
// stale.
func (e *eviction) newNode(n *node) NodeID {
	id := e.newSlot(n)
	if int(id) == len(e.line) {
		e.line = append(e.line, lineLink{})
		e.places[byAge] = append(e.places[byAge], nowhere)
		if e.ranked {
			e.places[byRank] = append(e.places[byRank], nowhere)
		}
		if e.turns.by != nil {
			e.places[byDue] = append(e.places[byDue], nowhere)
		}
	}
	return id
}

// newOrder returns an order with an empty line. edge is a slot of the slab that is no
// node: the line is a ring through it, so inserting and removing need no case for an
// empty line.
func (e *eviction) newOrder(edge NodeID) *order {
	e.line[edge] = lineLink{edge, edge}
	return &order{edge: edge}
}

// dropOrder removes an order that no space uses. It never removes the common order.
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

// byLine reports whether lines are kept: age decides evictions, or a TTL is set.
func (e *eviction) byLine() bool { return !e.ranked || e.cfg.TTL > 0 }

// lineInsert puts node id into a line right after the node or edge named after.
func (e *eviction) lineInsert(after, id NodeID) {
	next := e.line[after].next
	e.line[id] = lineLink{after, next}
	e.line[after].next, e.line[next].prev = id, id
	e.nodes[id].flags |= inLine
}

// lineRemove takes a node out of its line.
func (e *eviction) lineRemove(id NodeID) {
	l := e.line[id]
	e.line[l.prev].next, e.line[l.next].prev = l.next, l.prev
	e.nodes[id].flags &^= inLine
}

// rank returns a leaf's rank: the leaf with the lowest rank is evicted first.
func (e *eviction) rank(n *node) uint64 { return e.by.rank(&n.use, n.end()) }

// enlist adds an unpinned leaf to its order: to the heap by rank, if the policy has
// one, and by its stamp to the line's back, the line's front or the late heap. A leaf
// that is in the line or the late heap already keeps its place there.
func (e *eviction) enlist(id NodeID) {
	n := &e.nodes[id]
	o := n.space.order
	e.turns.addUp(id, &n.use)
	if e.ranked {
		o.ranked.put(e.places[byRank], heapKey{e.rank(n), n.stamp, id})
	}
	if s := e.turns.by; s != nil {
		e.turns.due.put(e.places[byDue], heapKey{s.due(&n.use), n.stamp, id})
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

// unheap takes a node that is no longer a leaf, or is pinned, out of the heaps. If the
// node is in the line it stays there; oldest removes it when it comes to the front.
func (e *eviction) unheap(id NodeID) {
	o := e.nodes[id].space.order
	if len(o.late.Items) > 0 {
		o.late.take(e.places[byAge], id)
	}
	if e.ranked {
		o.ranked.take(e.places[byRank], id)
	}
	if e.turns.by != nil {
		e.turns.due.take(e.places[byDue], id)
	}
}

// settle brings the ranks up to date that change with time.
func (e *eviction) settle() {
	s := e.turns.by
	if s == nil {
		return
	}
	for due := &e.turns.due; len(due.Items) > 0 && due.Items[0].key <= uint64(s.now); {
		id := due.Items[0].id
		s.weigh(&e.nodes[id].use)
		e.enlist(id)
	}
}

// delist takes a node out of the heaps and the line of its order.
func (e *eviction) delist(id NodeID) {
	e.unheap(id)
	if e.nodes[id].flags&inLine != 0 {
		e.lineRemove(id)
	}
}

// rerank updates a leaf's place in the heap by rank after a reuse, or after its
// length changed. A node that is not in the heap stays out.
func (e *eviction) rerank(id NodeID) {
	if e.ranked && e.places[byRank][id] != nowhere {
		e.enlist(id)
	}
}

// touch sets a node's stamp to the clock and moves the node to its new place in its
// order. For the root of a space it does so with the node at which the space begins. A
// parent gets the stamp only later, when it absorbs the node.
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

// absorb merges the use of a child that is being removed into its parent's: the later
// stamp, the sum of reuses, the higher priority and the policy's mark. The walks that
// ended in the child went through the parent too, but did not write to the parent.
func (e *eviction) absorb(parent, child NodeID) {
	p, n := &e.nodes[parent], &e.nodes[child]
	if n.stamp > p.stamp {
		if p.flags&inLine != 0 {
			e.lineRemove(parent) // its place in the line was that of its old stamp
		}
		p.stamp = n.stamp
	}
	p.reused(n.hits)
	p.prio = max(p.prio, n.prio)
	if e.ranked {
		chain := e.turns.by != nil && p.isLeaf() && p.flags&isRoot == 0 && p.mark&(flagHeld|mostForks<<markForks) == 0
		if e.turns.by != nil && !chain {
			e.turns.by.lose(parent, p.gen, hashPage(n.tokens.Slice(), e.cfg.PageTokens), &n.use)
		}
		e.by.absorb(&p.use, &n.use, !p.isLeaf())
	}
	e.turns.pass(&e.slab, child, parent, math.MaxInt32)
}

// oldest returns the least recently used unpinned leaf of an order, or Root if there is
// none. It removes nodes from the line's front that are pinned or no longer leaves.
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

// victim returns the leaf of an order that is evicted next, or Root if there is none.
func (e *eviction) victim(o *order) NodeID {
	if !e.ranked {
		return e.oldest(o)
	}
	if len(o.ranked.Items) == 0 {
		return Root
	}
	return o.ranked.Items[0].id
}

// weaker reports whether leaf a must be evicted before leaf b, which is in another order.
func (e *eviction) weaker(a, b NodeID) bool {
	m, n := &e.nodes[a], &e.nodes[b]
	if !e.ranked {
		return m.stamp < n.stamp
	}
	return heapKey{e.rank(m), m.stamp, a}.Before(heapKey{e.rank(n), n.stamp, b})
}
