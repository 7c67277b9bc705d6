package scheduler

import (
	"cmp"
	"math"
	"slices"

	"github.com/coppice-llm/coppice/radixcache"
)

// weights is the scratch of orderByWeight: a copy of those nodes of the prefix tree that
// lie on the path of some waiting sequence's match.
type weights struct {
	byID  map[radixcache.NodeID]int32 // index in nodes
	nodes []weighed
	path  []radixcache.NodeID // of one match, from the root
	kids  []int32             // a stack of child lists during emit
}

// weighed is a node of that copy. Nodes refer to each other by index in weights.nodes; node
// 0 is the root.
type weighed struct {
	weight  int       // waiting sequences whose match ends in the node or below
	kid     int32     // the child that was visited last; -1: none
	sibling int32     // the child of the same parent that was visited before; -1: none
	own     *sequence // first of the sequences whose match ends here, linked by nextOwn
}

// notRanked is the rank of sequences that came after the latest ordering: they go last.
const notRanked = math.MaxInt64

// orderByWeight ranks all sequences in lanes depth first through the prefix tree. Of a
// node's children, the one with most waiting sequences below goes first; the sequences
// that end in the node itself come after all children, by age. Sequences of one branch
// thus run together, while its prefix is cached.
//
// Cost: O(n log n) for n waiting sequences. best calls it after a quarter of the queue has
// changed, so the cost per change grows only with log n.
func (w *queue) orderByWeight() {
	t := &w.weights
	if t.byID == nil {
		t.byID = make(map[radixcache.NodeID]int32)
	}
	clear(t.byID)
	t.nodes = append(t.nodes[:0], weighed{kid: -1, sibling: -1})
	for q := w.oldest; q != nil; q = q.wait.newer {
		if q.wait.lane != nil {
			t.weigh(w.cache, w.lookup(q), q)
		}
	}
	rank := int64(0)
	t.emit(0, &rank)
	for q := w.oldest; q != nil; q = q.wait.newer {
		if q.wait.lane != nil {
			w.rerank(q)
		}
	}
	clear(t.nodes) // or they would keep ended sequences alive
	w.stale = 0
}

// weigh counts q in each node from the root to the end of m, its match in the cache, and
// lists q under the last of these nodes.
func (t *weights) weigh(cache *radixcache.Cache, m radixcache.Match, q *sequence) {
	at := int32(0)
	t.nodes[0].weight++
	t.path = cache.AppendNodes(m, t.path[:0])
	for _, id := range t.path {
		n, known := t.byID[id]
		if !known {
			n = int32(len(t.nodes))
			t.byID[id] = n
			t.nodes = append(t.nodes, weighed{kid: -1, sibling: t.nodes[at].kid})
			t.nodes[at].kid = n
		}
		at = n
		t.nodes[at].weight++
	}
	q.wait.nextOwn, t.nodes[at].own = t.nodes[at].own, q
}

// emit ranks the sequences that end in node at or below it. They get the ranks *rank,
// *rank+1 and so on, and emit leaves the next free rank in *rank. It recurses as deep as
// the tree.
func (t *weights) emit(at int32, rank *int64) {
	lo := len(t.kids)
	for k := t.nodes[at].kid; k >= 0; k = t.nodes[k].sibling {
		t.kids = append(t.kids, k)
	}
	slices.SortFunc(t.kids[lo:], func(a, b int32) int { // equal weights by first visit
		return cmp.Or(cmp.Compare(t.nodes[b].weight, t.nodes[a].weight), cmp.Compare(a, b))
	})
	for i := lo; i < len(t.kids); i++ {
		hi := len(t.kids)
		t.emit(t.kids[i], rank)
		t.kids = t.kids[:hi]
	}
	t.kids = t.kids[:lo]
	for q := t.nodes[at].own; q != nil; q = q.wait.nextOwn {
		q.wait.treeRank = *rank // equal ranks go by age
	}
	*rank++
}
