package scheduler

import "github.com/coppice-llm/coppice/internal/heap"

// seqHeap is a heap of sequences by one of the orders. The keys are in its items, so that
// sorting reads no sequence: with 10,000 waiting, each would be a cache miss.
type seqHeap struct {
	order order
	heap.Heap[item, order]
}

// item is a sequence with its key: rank, then arrival.
type item struct {
	rank    int64
	arrival uint64
	q       *sequence
}

// order determines the keys of a heap, and the index in sequence.heapAt where its places
// are kept.
type order uint8

const (
	byRank  order = iota // lowest rank first, then the older
	byAge                // oldest first
	byWorth              // lowest priority first, then the younger: the victims of a full queue
	orders               // number of orders
)

// item returns q with its key under the order o. The key must not change while q is in a
// heap. In byWorth, ^arrival makes the younger sequence come first.
func (o order) item(q *sequence) item {
	switch o {
	case byRank:
		return item{q.wait.rank, q.arrival, q}
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
func (o order) Place(x item, at int) { x.q.wait.heapAt[o] = at }

// head returns the first sequence of a heap that is not empty.
func (h *seqHeap) head() *sequence { return h.Items[0].q }

func (h *seqHeap) empty() bool { return len(h.Items) == 0 }

func (h *seqHeap) push(q *sequence) { h.Push(h.order, h.order.item(q)) }

func (h *seqHeap) remove(q *sequence) { h.Remove(h.order, q.wait.heapAt[h.order]) }
