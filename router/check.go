package router

import (
	"fmt"
	"slices"
	"time"

	"github.com/coppice-llm/coppice/internal/invariants"
)

// verify runs Check under the tag invariants.
func (r *Router) verify() {
	if invariants.Enabled {
		if err := r.Check(); err != nil {
			panic(err)
		}
	}
}

// Check walks all there is and says what does not fit: the loads of workers are
// the sums of their reservations, and the tree has what these hold. It costs
// O(everything).
func (r *Router) Check() error {
	sums := make([]worker, len(r.workers))
	last := time.Duration(-1 << 62)
	count := 0
	for at := r.ages.head; at != none; at = r.slab[at].links[byAge].next {
		e := &r.slab[at]
		w := &sums[e.slot]
		w.requests++
		w.private += e.private
		w.contextTokens += e.promptTokens + e.outputTokens
		if e.prefilling {
			w.prefilling++
			w.prefillTokens += e.uncached - e.computed
			w.predicted += e.predicted
		}
		if e.touched < last {
			return fmt.Errorf("router: reservation %d was touched at %v, the one before at %v", e.id, e.touched, last)
		}
		last = e.touched
		if count++; count > r.active {
			break
		}
	}
	if count != r.active || r.active+len(r.freeEntries) != len(r.slab) {
		return fmt.Errorf("router: %d reservations by age, %d counted, %d free of %d", count, r.active, len(r.freeEntries), len(r.slab))
	}
	hashed, err := r.tree.check(r)
	if err != nil {
		return err
	}
	if err := r.tree.checkPromises(r); err != nil {
		return err
	}
	if err := r.clock.check(r); err != nil {
		return err
	}
	if err := checkModels(r); err != nil {
		return err
	}
	if err := checkGauges(r); err != nil {
		return err
	}
	if err := r.queue.check(); err != nil {
		return err
	}
	if err := r.sessions.check(); err != nil {
		return err
	}
	order := r.models[anyModel].order
	for _, slot := range order {
		w, sum := &r.workers[slot], &sums[slot]
		if w.requests != sum.requests || w.private != sum.private || w.contextTokens != sum.contextTokens || w.prefilling != sum.prefilling ||
			w.prefillTokens != sum.prefillTokens || w.predicted != sum.predicted || w.hashed != hashed[slot] {
			return fmt.Errorf("router: worker %v has %d requests, %d of them prefilling %d tokens for %v, %d + %d blocks, %d tokens; its reservations have %d, %d, %d, %v, %d + %d, %d",
				w.id, w.requests, w.prefilling, w.prefillTokens, w.predicted, w.hashed, w.private, w.contextTokens,
				sum.requests, sum.prefilling, sum.prefillTokens, sum.predicted, hashed[slot], sum.private, sum.contextTokens)
		}
	}
	if !slices.IsSortedFunc(order, func(a, b int32) int { return r.workers[a].id.Compare(r.workers[b].id) }) {
		return fmt.Errorf("router: workers are not in order: %v", order)
	}
	return nil
}

// check holds the tree against the reservations, and returns the blocks of each
// slot.
func (t *tree) check(r *Router) (hashed []int, err error) {
	type path struct {
		slot int32
		node int32
	}
	refs, ends := map[path]int32{}, map[int32]int32{}
	for at := r.ages.head; at != none; at = r.slab[at].links[byAge].next {
		e := &r.slab[at]
		if e.end != rootNode {
			ends[e.end]++
		}
		for n := e.end; n != rootNode; n = t.nodes[n].parent {
			refs[path{e.slot, n}]++
		}
	}
	hashed = make([]int, len(r.workers))
	used := 0
	for id := int32(1); int(id) < len(t.nodes); id++ {
		n := &t.nodes[id]
		if len(n.run) == 0 {
			continue
		}
		used++
		holders := int32(0)
		for slot := range slots(t.has(id)) {
			holders++
			hashed[slot] += len(n.run)
			if got := t.refs.get(key{uint64(slot), uint32(id)}); got != refs[path{slot, id}] || got < 1 {
				return nil, fmt.Errorf("router: node %d has %d requests of slot %d, there are %d", id, got, slot, refs[path{slot, id}])
			}
		}
		if holders != n.holders || holders == 0 || n.ends != ends[id] {
			return nil, fmt.Errorf("router: node %d has %d holders and %d ends, there are %d and %d", id, n.holders, n.ends, holders, ends[id])
		}
		if n.ends == 0 && n.children < 2 {
			return nil, fmt.Errorf("router: node %d should be one with its child", id)
		}
		if got := t.children.get(key{uint64(n.run[0]), uint32(n.parent)}); got != id {
			return nil, fmt.Errorf("router: node %d is not found below %d: %d is", id, n.parent, got)
		}
	}
	if used+len(t.free)+1 != len(t.nodes) || t.refs.n != len(refs) || t.children.n != used {
		return nil, fmt.Errorf("router: %d nodes, %d in use and %d free; %d refs for %d, %d children", len(t.nodes), used, len(t.free), t.refs.n, len(refs), t.children.n)
	}
	return hashed, nil
}
