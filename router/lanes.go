package router

import (
	"fmt"

	"github.com/coppice-llm/coppice/kv"
)

// lane are those who wait for the same workers, the one who goes first at the top of a
// heap: if that one can't go, none of them can, so who goes next costs a step for each
// lane, however many wait. Those who avoid workers, each others, are in one lane together
// and looked at one by one.
type lane struct {
	of   laneOf
	heap []int32 // of queue.slab
}

type laneOf struct {
	model  ModelID
	pool   PoolID
	pin    kv.Rank
	pinned bool
	picky  bool // they avoid workers
}

func laneFor(req *Request) laneOf {
	if len(req.Avoid) > 0 {
		return laneOf{picky: true}
	}
	of := laneOf{model: req.Model, pool: req.Pool}
	if req.Pinned != nil {
		of.pin, of.pinned = *req.Pinned, true
	}
	return of
}

// less tells whether who waits at a goes before who waits at b: by priority, then rank,
// then as they came.
func (q *queue) less(a, b int32) bool {
	v, w := &q.slab[a], &q.slab[b]
	switch {
	case v.req.Priority != w.req.Priority:
		return v.req.Priority > w.req.Priority
	case v.rank != w.rank:
		return v.rank > w.rank
	}
	return v.id < w.id
}

// first is who goes next: of those whose workers are not all busy, the one before all
// others. Who waits for busy workers holds up nobody.
func (q *queue) first(r *Router) int32 {
	if q.n == 0 || r.active >= r.cfg.MaxActive {
		return none
	}
	best := int32(none)
	for i := range q.lanes {
		heap := q.lanes[i].heap
		if !q.lanes[i].of.picky {
			heap = heap[:min(1, len(heap))]
		}
		for _, at := range heap {
			if (best == none || q.less(at, best)) && !r.allBusy(&q.slab[at].req) {
				best = at
			}
		}
	}
	return best
}

// enqueue puts an entry of the slab into its lane. Lanes that are empty are used again.
func (q *queue) enqueue(at int32) {
	of, to := laneFor(&q.slab[at].req), none
	for i := range q.lanes {
		if len(q.lanes[i].heap) == 0 {
			to = i
		} else if q.lanes[i].of == of {
			to = i
			break
		}
	}
	if to == none {
		to = len(q.lanes)
		q.lanes = append(q.lanes, lane{})
	}
	l := &q.lanes[to]
	l.of, l.heap = of, append(l.heap, at)
	q.slab[at].lane = int32(to)
	q.up(l.heap, len(l.heap)-1)
	q.n++
}

// dequeue takes an entry out of its lane and frees it.
func (q *queue) dequeue(at int32) {
	w := &q.slab[at]
	l, i := &q.lanes[w.lane], int(w.heapAt)
	last := len(l.heap) - 1
	l.heap[i] = l.heap[last]
	l.heap = l.heap[:last]
	if i < last {
		q.up(l.heap, i)
		q.down(l.heap, int(q.slab[l.heap[i]].heapAt))
	}
	*w = waiting{}
	q.free = append(q.free, at)
	q.n--
}

// up lets the entry at i rise to its place.
func (q *queue) up(heap []int32, i int) {
	at := heap[i]
	for i > 0 && q.less(at, heap[(i-1)/2]) {
		q.place(heap, i, heap[(i-1)/2])
		i = (i - 1) / 2
	}
	q.place(heap, i, at)
}

// down lets the entry at i sink to its place.
func (q *queue) down(heap []int32, i int) {
	at := heap[i]
	for {
		child := 2*i + 1
		if child >= len(heap) {
			break
		}
		if child+1 < len(heap) && q.less(heap[child+1], heap[child]) {
			child++
		}
		if !q.less(heap[child], at) {
			break
		}
		q.place(heap, i, heap[child])
		i = child
	}
	q.place(heap, i, at)
}

func (q *queue) place(heap []int32, i int, at int32) {
	heap[i] = at
	q.slab[at].heapAt = int32(i)
}

// check walks the lanes.
func (q *queue) check() error {
	n := 0
	seen := map[laneOf]bool{}
	for i := range q.lanes {
		l := &q.lanes[i]
		if len(l.heap) > 0 && seen[l.of] {
			return fmt.Errorf("router: two lanes for %+v", l.of)
		}
		seen[l.of] = seen[l.of] || len(l.heap) > 0
		for j, at := range l.heap {
			w := &q.slab[at]
			if w.id == 0 || int(w.lane) != i || int(w.heapAt) != j || laneFor(&w.req) != l.of {
				return fmt.Errorf("router: ticket %d at %d of lane %d %+v has its place at %d of lane %d", w.id, j, i, l.of, w.heapAt, w.lane)
			}
			if j > 0 && q.less(at, l.heap[(j-1)/2]) {
				return fmt.Errorf("router: in lane %d, ticket %d is below one that goes later", i, w.id)
			}
		}
		n += len(l.heap)
	}
	if n != q.n || n+len(q.free) != len(q.slab) {
		return fmt.Errorf("router: %d wait in lanes, %d counted, %d free of %d", n, q.n, len(q.free), len(q.slab))
	}
	return nil
}
