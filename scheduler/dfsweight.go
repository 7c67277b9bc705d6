package scheduler

import (
	"cmp"
	"math"
	"slices"

	"github.com/coppice-llm/coppice/radixcache"
	"github.com/coppice-llm/coppice/scheduler/internal/accounts"
)

// DFSWeight goes depth first through the prefix tree, and visits first the subtrees
// for which most requests wait (SGLang: dfs-weight).
const DFSWeight Policy = 2

var dfsWeight = policy{
	name:    "dfs-weight",
	about:   "depth first, subtrees with most requests",
	byCache: true,
	starves: true,
	order: func(*Config, *accounts.Accounts) ordering {
		return &dfsOrdering{byID: make(map[radixcache.NodeID]int32)}
	},
}

// dfsOrdering ranks the whole queue at a time. The mark of a sequence is its rank by the latest
// sort; 0, the mark of one that came later, goes last. The rest is scratch of sort: a copy of those
// nodes of the prefix tree that lie on the path of some waiting sequence's match.
type dfsOrdering struct {
	plainOrdering
	sorted uint64 // queue.changes at the latest sort

	byID  map[radixcache.NodeID]int32 // index in nodes
	nodes []weighed
	own   []ownEntry          // lists of the sequences whose match ends in a node
	path  []radixcache.NodeID // of one match, from the root
	kids  []int32             // a stack of child lists during emit
}

// weighed is a node of that copy. Nodes refer to each other by index in dfsOrdering.nodes; node
// 0 is the root.
type weighed struct {
	weight  int   // waiting sequences whose match ends in the node or below
	kid     int32 // the child that was visited last; -1: none
	sibling int32 // the child of the same parent that was visited before; -1: none
	own     int32 // index in dfsOrdering.own of the first sequence whose match ends here; -1: none
}

// ownEntry is a sequence, and the index of the next one whose match ends in the same node; -1: none.
type ownEntry struct {
	q    *sequence
	next int32
}

func (o *dfsOrdering) rank(q *sequence) int64 {
	if q.wait.mark == 0 {
		return math.MaxInt64
	}
	return q.wait.mark
}

// best sorts the queue again after a quarter of it has changed.
func (o *dfsOrdering) best(w *queue, work uint64) *sequence {
	if w.cache != nil && 4*int(w.changes-o.sorted) > w.size {
		o.sort(w)
	}
	return o.plainOrdering.best(w, work)
}

// sort ranks all sequences in lanes depth first through the prefix tree. Of a
// node's children, the one with most waiting sequences below goes first; the sequences
// that end in the node itself come after all children, by age. Sequences of one branch
// thus run together, while its prefix is cached.
//
// Cost: O(n log n) for n waiting sequences. best calls it after a quarter of the queue has
// changed, so the cost per change grows only with log n.
func (o *dfsOrdering) sort(w *queue) {
	clear(o.byID)
	o.nodes = append(o.nodes[:0], weighed{kid: -1, sibling: -1, own: -1})
	for q := w.oldest; q != nil; q = q.wait.newer {
		if q.wait.lane != nil {
			o.weigh(w.cache, w.lookup(q), q)
		}
	}
	rank := int64(1)
	o.emit(0, &rank)
	for q := w.oldest; q != nil; q = q.wait.newer {
		if q.wait.lane != nil {
			w.rerank(q)
		}
	}
	clear(o.own) // or they would keep ended sequences alive
	o.own = o.own[:0]
	o.sorted = w.changes
}

// weigh counts q in each node from the root to the end of m, its match in the cache, and
// lists q under the last of these nodes.
func (o *dfsOrdering) weigh(cache *radixcache.Cache, m radixcache.Match, q *sequence) {
	at := int32(0)
	o.nodes[0].weight++
	o.path = cache.AppendNodes(m, o.path[:0])
	for _, id := range o.path {
		n, known := o.byID[id]
		if !known {
			n = int32(len(o.nodes))
			o.byID[id] = n
			o.nodes = append(o.nodes, weighed{kid: -1, sibling: o.nodes[at].kid, own: -1})
			o.nodes[at].kid = n
		}
		at = n
		o.nodes[at].weight++
	}
	o.own = append(o.own, ownEntry{q, o.nodes[at].own})
	o.nodes[at].own = int32(len(o.own) - 1)
}

// emit ranks the sequences that end in node at or below it. They get the ranks *rank,
// *rank+1 and so on, and emit leaves the next free rank in *rank. It recurses as deep as
// the tree.
func (o *dfsOrdering) emit(at int32, rank *int64) {
	lo := len(o.kids)
	for k := o.nodes[at].kid; k >= 0; k = o.nodes[k].sibling {
		o.kids = append(o.kids, k)
	}
	slices.SortFunc(o.kids[lo:], func(a, b int32) int { // equal weights by first visit
		return cmp.Or(cmp.Compare(o.nodes[b].weight, o.nodes[a].weight), cmp.Compare(a, b))
	})
	for i := lo; i < len(o.kids); i++ {
		hi := len(o.kids)
		o.emit(o.kids[i], rank)
		o.kids = o.kids[:hi]
	}
	o.kids = o.kids[:lo]
	for i := o.nodes[at].own; i >= 0; i = o.own[i].next {
		o.own[i].q.wait.mark = *rank // equal ranks go by age
	}
	*rank++
}
