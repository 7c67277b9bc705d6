package scheduler

import "github.com/coppice-llm/coppice/internal/heap"

// seqHeap is a heap of sequences by one of the orders. Its keys stand in it, so that
// sorting reads no sequence.
type seqHeap struct {
	order order
	heap.Heap[item, order]
}

// item is a sequence and its key: rank, then age.
type item struct {
	rank    int64
	arrival uint64
	q       *sequence
}

// order is by what a heap is sorted, and where sequences keep their place in it.
type order uint8

const (
	byRank  order = iota // lowest first, equal ones by age
	byAge                // oldest first
	byWorth              // lowest in precedence first: the order in which a full queue ends requests
	orders
)

// item gives q its key. It must not change while q stands in a heap.
func (o order) item(q *sequence) item {
	switch o {
	case byRank:
		return item{q.rank, q.arrival, q}
	case byWorth:
		return item{int64(q.req.Priority), ^q.arrival, q}
	}
	return item{0, q.arrival, q}
}

// Before implements heap.Element.
func (a item) Before(b item) bool {
	return a.rank < b.rank || a.rank == b.rank && a.arrival < b.arrival
}

// Place implements heap.Places.
func (o order) Place(x item, at int) { x.q.heapAt[o] = at }

// first is the first of a heap that is not empty.
func (h *seqHeap) first() *sequence { return h.Items[0].q }

func (h *seqHeap) empty() bool { return len(h.Items) == 0 }

func (h *seqHeap) push(q *sequence) { h.Push(h.order, h.order.item(q)) }

func (h *seqHeap) remove(q *sequence) { h.Remove(h.order, q.heapAt[h.order]) }
