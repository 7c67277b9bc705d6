package scheduler

// seqHeap is a binary heap of sequences that knows where each one is. Its keys stand in
// it, so that sorting reads no sequence.
type seqHeap struct {
	order order
	items []item
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

func (a *item) before(b *item) bool {
	if a.rank != b.rank {
		return a.rank < b.rank
	}
	return a.arrival < b.arrival
}

// first is the first of a heap that is not empty.
func (h *seqHeap) first() *sequence { return h.items[0].q }

func (h *seqHeap) empty() bool { return len(h.items) == 0 }

func (h *seqHeap) push(q *sequence) {
	h.items = append(h.items, item{})
	h.up(len(h.items)-1, h.order.item(q))
}

func (h *seqHeap) remove(q *sequence) {
	at, last := q.heapAt[h.order], len(h.items)-1
	moved := h.items[last]
	h.items[last] = item{}
	h.items = h.items[:last]
	if at < last && !h.down(at, moved) {
		h.up(at, moved)
	}
}

// up puts x at a place that is free, or above it.
func (h *seqHeap) up(at int, x item) {
	for at > 0 {
		parent := (at - 1) / 2
		if !x.before(&h.items[parent]) {
			break
		}
		h.set(at, h.items[parent])
		at = parent
	}
	h.set(at, x)
}

// down puts x below a place that is free, or returns false if it belongs there or
// above.
func (h *seqHeap) down(at int, x item) (moved bool) {
	for {
		child := 2*at + 1
		if child >= len(h.items) {
			break
		}
		if right := child + 1; right < len(h.items) && h.items[right].before(&h.items[child]) {
			child = right
		}
		if !h.items[child].before(&x) {
			break
		}
		h.set(at, h.items[child])
		at, moved = child, true
	}
	if moved {
		h.set(at, x)
	}
	return moved
}

func (h *seqHeap) set(at int, x item) {
	h.items[at] = x
	x.q.heapAt[h.order] = at
}
