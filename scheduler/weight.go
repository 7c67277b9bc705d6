package scheduler

import (
	"cmp"
	"math"
	"slices"

	"github.com/coppice-llm/coppice/radixcache"
)

// weights is the scratch of an ordering by weight: the part of the prefix tree
// that waiting requests reach.
type weights struct {
	byID  map[radixcache.NodeID]int32
	nodes []weighed
	path  []radixcache.NodeID
	kids  []int32
}

// weighed is a node of it. Indices; node 0 is the root.
type weighed struct {
	weight  int   // waiting sequences whose match ends in it or below
	kid     int32 // first child, by first visit
	sibling int32
	own     *sequence // of those whose match ends here, linked by nextOwn
}

// notRanked is the place of sequences that came after the latest ordering.
const notRanked = math.MaxInt64

// orderByWeight ranks all in lanes depth first through the prefix tree: of a
// node's children the one first below which most wait, then the sequences that end in
// the node itself, by age. It is done anew when a quarter of the queue has changed,
// so that its cost per change does not grow with the queue.
func (w *queue) orderByWeight() {
	t := &w.weights
	if t.byID == nil {
		t.byID = make(map[radixcache.NodeID]int32)
	}
	clear(t.byID)
	t.nodes = append(t.nodes[:0], weighed{kid: -1, sibling: -1})
	for q := w.oldest; q != nil; q = q.newer {
		if q.lane != nil {
			t.weigh(w.cache, w.lookup(q), q)
		}
	}
	rank := int64(0)
	t.emit(0, &rank)
	for q := w.oldest; q != nil; q = q.newer {
		if q.lane != nil {
			w.rerank(q)
		}
	}
	clear(t.nodes) // or sequences that left would be kept alive
	w.stale = 0
}

// weigh adds q along its path.
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
	q.nextOwn, t.nodes[at].own = t.nodes[at].own, q
}

// emit ranks what ends in a node or below. Its depth is the tree's.
func (t *weights) emit(at int32, rank *int64) {
	lo := len(t.kids)
	for k := t.nodes[at].kid; k >= 0; k = t.nodes[k].sibling {
		t.kids = append(t.kids, k)
	}
	slices.SortFunc(t.kids[lo:], func(a, b int32) int { // equal ones by first visit
		return cmp.Or(cmp.Compare(t.nodes[b].weight, t.nodes[a].weight), cmp.Compare(a, b))
	})
	for i := lo; i < len(t.kids); i++ {
		hi := len(t.kids)
		t.emit(t.kids[i], rank)
		t.kids = t.kids[:hi]
	}
	t.kids = t.kids[:lo]
	for q := t.nodes[at].own; q != nil; q = q.nextOwn {
		q.treeRank = *rank // ties go by age
	}
	*rank++
}
