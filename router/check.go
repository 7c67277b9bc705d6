package router

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/coppice-llm/coppice/internal/invariants"
)

// verify panics with the first fault that Check finds. Without the build tag invariants it does
// nothing.
func (r *Router) verify() {
	if invariants.Enabled {
		if err := r.Check(); err != nil {
			panic(err)
		}
	}
}

// Check walks the whole state and returns the first fault: each worker's load must be
// the sum over its reservations, and the tree must hold exactly their blocks. It costs
// O(all reservations and their blocks), so it runs after each change only under the tag
// invariants.
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
	hashed, err := r.checkTree()
	if err != nil {
		return err
	}
	for _, check := range [...]func() error{r.checkPromises, r.checkDebts, r.checkGroups, r.queue.check, r.sessions.check} {
		if err := check(); err != nil {
			return err
		}
	}
	order := r.all()
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

// checkTree compares the tree with the reservations: references, holders, ends and links to
// children. A node that could be joined with its only child is a fault too. hashed is the number
// of blocks that each worker holds in the tree, by slot.
func (l *ledger) checkTree() (hashed []int, err error) {
	t := &l.tree
	type path struct {
		slot int32
		node int32
	}
	refs, ends := map[path]int32{}, map[int32]int32{}
	for at := l.ages.head; at != none; at = l.slab[at].links[byAge].next {
		e := &l.slab[at]
		if e.end != rootNode {
			ends[e.end]++
		}
		for n := e.end; n != rootNode; n = t.nodes[n].parent {
			refs[path{e.slot, n}]++
		}
	}
	hashed = make([]int, len(l.fleet.workers))
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
	if used+len(t.free)+1 != len(t.nodes) || t.refs.Len() != len(refs) || t.children.Len() != used {
		return nil, fmt.Errorf("router: %d nodes, %d in use and %d free; %d refs for %d, %d children", len(t.nodes), used, len(t.free), t.refs.Len(), len(refs), t.children.Len())
	}
	return hashed, nil
}

// checkPromises compares the counts of predicted blocks with the reservations that
// predict them.
func (l *ledger) checkPromises() error {
	promises, want := &l.tree.promises, map[key]int32{}
	for at := l.ages.head; at != none; at = l.slab[at].links[byAge].next {
		e := &l.slab[at]
		if !e.made {
			continue
		}
		if !e.prefilling {
			return fmt.Errorf("router: reservation %d has had its first token, and promises blocks", e.id)
		}
		for _, h := range l.tree.promised(e) {
			want[key{uint64(h), uint32(e.slot)}]++
		}
	}
	for k, n := range want {
		if got := promises.get(k); got != n {
			return fmt.Errorf("router: block %x of slot %d is promised %d times, by %d requests", k.a, k.b, got, n)
		}
	}
	if promises.Len() != len(want) {
		return fmt.Errorf("router: %d promised blocks, %d by requests", promises.Len(), len(want))
	}
	return nil
}

// checkDebts compares the debts of workers with their reservations, and nextLate with
// the earliest time at which a worker can be late.
func (l *ledger) checkDebts() error {
	stalled := 0
	for _, slot := range l.fleet.all() {
		w := &l.fleet.workers[slot]
		var want, got [asAnswer + 1]int
		for at := w.active.head; at != none; at = l.slab[at].links[byWorker].next {
			e := &l.slab[at]
			want[e.due]++
			if e.due == asToken && !e.prefilling || e.due != nothing && e.peer != ownPeer {
				return fmt.Errorf("router: reservation %d of %d is due %d, prefilling %v", e.id, e.peer, e.due, e.prefilling)
			}
		}
		for at := w.firsts.head; at != none; at = l.slab[at].links[byDebt].next {
			got[asToken]++
		}
		for at := w.answers.head; at != none; at = l.slab[at].links[byDebt].next {
			got[asAnswer]++
		}
		if got[asNext], want[nothing] = w.streaming, 0; got != want {
			return fmt.Errorf("router: worker %v owes %v, its reservations are due %v", w.id, got, want)
		}
		if w.stalled {
			stalled++
		} else if at := l.lateAt(w); at < l.nextLate {
			return fmt.Errorf("router: worker %v will be late at %v, which is looked at after %v", w.id, at, l.nextLate)
		}
	}
	if stalled != l.fleet.stalled {
		return fmt.Errorf("router: %d workers are stalled, counted are %d", stalled, l.fleet.stalled)
	}
	return nil
}

// checkGroups compares the groups with the workers' specs.
func (f *fleet) checkGroups() error {
	want := map[group][]int32{{}: nil}
	for _, slot := range f.all() {
		for _, g := range groupsOf(&f.workers[slot].spec) {
			want[g] = append(want[g], slot)
		}
	}
	if !maps.EqualFunc(want, f.groups, slices.Equal[[]int32]) || len(f.all())+len(f.freeSlots) != len(f.workers) {
		return fmt.Errorf("router: groups %v, want %v; %d of %d slots are free", f.groups, want, len(f.freeSlots), len(f.workers))
	}
	return nil
}

// check walks the queue's lanes and returns the first fault: a lane out of heap order, a request
// that does not know its place in its lane, two lanes of one kind, or a wrong number of free
// entries.
func (q *queue) check() error {
	n := 0
	seen := map[laneOf]bool{}
	for i := range q.lanes {
		l := &q.lanes[i]
		if len(l.Items) > 0 && seen[l.of] {
			return fmt.Errorf("router: two lanes for %+v", l.of)
		}
		seen[l.of] = seen[l.of] || len(l.Items) > 0
		for j, t := range l.Items {
			w := &q.slab[t.at]
			if w.turn != t || t.id == 0 || int(w.lane) != i || int(w.heapAt) != j || laneFor(&w.req) != l.of {
				return fmt.Errorf("router: %+v at %d of lane %d %+v has its place at %d of lane %d", t, j, i, l.of, w.heapAt, w.lane)
			}
			if j > 0 && t.Before(l.Items[(j-1)/2]) {
				return fmt.Errorf("router: in lane %d, ticket %d is below one that goes later", i, w.id)
			}
		}
		n += len(l.Items)
	}
	if n != q.n || n+len(q.free) != len(q.slab) {
		return fmt.Errorf("router: %d wait in lanes, %d counted, %d free of %d", n, q.n, len(q.free), len(q.slab))
	}
	return nil
}

// check compares the heap of sessions with the index and returns the first fault.
func (s *sessions) check() error {
	for i, a := range s.byAge.Items {
		e := &s.entries[a.at]
		if e.id == 0 || e.touched != a.touched || int(e.heapAt) != i || s.index.get(key{a: e.id}) != a.at || e.stamp > s.stamp || a.Before(s.byAge.Items[max(0, i-1)/2]) {
			return fmt.Errorf("router: session %d at %d has stamp %d of %d, is at %d of the heap and not %d, and is found at %d",
				e.id, a.at, e.stamp, s.stamp, e.heapAt, i, s.index.get(key{a: e.id}))
		}
	}
	if n := len(s.byAge.Items); n != s.index.Len() || n+len(s.free) != len(s.entries) || n > s.cfg.MaxSessions {
		return fmt.Errorf("router: %d sessions of at most %d are in the heap, %d indexed, %d free of %d", n, s.cfg.MaxSessions, s.index.Len(), len(s.free), len(s.entries))
	}
	return nil
}
