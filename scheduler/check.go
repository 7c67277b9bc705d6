package scheduler

import (
	"errors"
	"fmt"
	"slices"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/kv"
)

// Check walks the whole state and returns an error for any inconsistency: each page must have
// exactly one owner, each open request exactly one place, each slot one user at most. It
// runs after every mutation under -tags invariants. Cost: all pages, tokens of the tree,
// and sequences.
func (s *Scheduler) Check() error {
	errs := []error{s.room.lease.Check()}
	if s.cache != nil {
		errs = append(errs, s.cache.Check())
		if tree, lease := s.cache.Stats().Pages, s.room.lease.CachedPages(); tree != lease {
			errs = append(errs, fmt.Errorf("scheduler: the tree holds %d pages, the lease says %d", tree, lease))
		}
	}
	owner := make(map[kv.PageID]RequestID)
	errs = append(errs, s.running.check(&s.room, owner), s.fetches.check(owner))
	if held := s.room.lease.HeldPages(); held != len(owner) {
		errs = append(errs, fmt.Errorf("scheduler: %d pages are held, requests own %d", held, len(owner)))
	}
	samples := 0
	for id, g := range s.open { // any order: only checks
		for _, q := range g.samples {
			if q.req.ID != id || q.place == ended {
				errs = append(errs, fmt.Errorf("scheduler: request %d is open with a sample of request %d at place %d", id, q.req.ID, q.place))
			}
		}
		samples += len(g.samples)
	}
	if n := s.queue.size + len(s.running.all) + len(s.running.preempted); n != samples {
		errs = append(errs, fmt.Errorf("scheduler: %d waiting, %d running and %d returned of %d open", s.queue.size, len(s.running.all), len(s.running.preempted), samples))
	}
	errs = append(errs, s.queue.check(), s.accounts.Check(), s.plans.check())
	return errors.Join(errs...)
}

// check checks that the pages which a sequence shares are in the tree, that each held page
// belongs to one sequence, that computed tokens have pages, that slots of l are free or in use
// once, and that the lists agree with the state of their sequences. It adds held pages to
// owner.
func (r *runningSet) check(l *room, owner map[kv.PageID]RequestID) error {
	used := make(map[engine.Slot]bool)
	for _, slot := range l.slots {
		used[slot] = true
	}
	filling := 0
	for _, q := range r.all {
		if q.place != running {
			return fmt.Errorf("scheduler: request %d is listed as running, but is at place %d", q.req.ID, q.place)
		}
		if used[q.table.slot] {
			return fmt.Errorf("scheduler: slot %d of request %d is taken twice", q.table.slot, q.req.ID)
		}
		used[q.table.slot] = true
		if err := q.checkPages(l, owner); err != nil {
			return err
		}
		if q.done < q.target {
			filling++
			if !slices.Contains(r.prefilling, q) {
				return fmt.Errorf("scheduler: request %d prefills, but is not listed", q.req.ID)
			}
		} else if len(q.wait.follow.followers) > 0 {
			return fmt.Errorf("scheduler: request %d has computed its prompt, but %d followers wait for it", q.req.ID, len(q.wait.follow.followers))
		}
	}
	if filling != len(r.prefilling) {
		return fmt.Errorf("scheduler: %d sequences prefill, %d are listed", filling, len(r.prefilling))
	}
	if len(used) != r.cfg.MaxRunning {
		return fmt.Errorf("scheduler: %d slots are free or taken, there are %d", len(used), r.cfg.MaxRunning)
	}
	for _, q := range r.preempted {
		if q.place != preempted || q.rows.inflight == 0 {
			return fmt.Errorf("scheduler: request %d waits for %d rows at place %d", q.req.ID, q.rows.inflight, q.place)
		}
	}
	return nil
}

// checkPages checks the pages of q, which runs, and adds its own to owner.
func (q *sequence) checkPages(l *room, owner map[kv.PageID]RequestID) error {
	for _, id := range q.table.own() {
		if other, taken := owner[id]; taken {
			return fmt.Errorf("scheduler: page %d belongs to request %d and to request %d", id, other, q.req.ID)
		}
		if !l.lease.Held(id) {
			return fmt.Errorf("scheduler: request %d uses page %d, which is not held", q.req.ID, id)
		}
		owner[id] = q.req.ID
	}
	for _, id := range q.table.pages[:q.table.shared] {
		if l.lease.Held(id) {
			return fmt.Errorf("scheduler: page %d, shared by request %d, is not in the tree", id, q.req.ID)
		}
	}
	if q.computed > len(q.table.pages)*l.pageTokens {
		return fmt.Errorf("scheduler: request %d has %d tokens computed on %d pages", q.req.ID, q.computed, len(q.table.pages))
	}
	return nil
}

// check checks that each sequence counts as many rows in flight as the plans have of it, and that
// the masks agree with the plans.
func (ps *plans) check() error {
	rows := make(map[*sequence]int8)
	var batches []*engine.Batch
	for _, p := range ps.inflight {
		batches = append(batches, &p.Batch)
		for i := range p.rows {
			rows[p.rows[i].q]++
		}
	}
	for q, n := range rows { // any order: only checks
		if q.place != ended && q.rows.inflight != n {
			return fmt.Errorf("scheduler: request %d has %d rows in flight, counts %d", q.req.ID, n, q.rows.inflight)
		}
	}
	return ps.masks.Check(batches)
}

// check walks the queue. It checks the order of sequences by age, their lanes and heaps,
// that followers are listed by their leaders, and the index.
func (w *queue) check() error {
	n, lined, displaceable := 0, 0, 0
	for q := w.oldest; q != nil; q = q.wait.newer {
		n++
		if q.wait.displaceable {
			displaceable++
		}
		if q.wait.newer != nil && q.wait.newer.arrival <= q.arrival {
			return fmt.Errorf("scheduler: request %d waits out of order", q.req.ID)
		}
		switch {
		case q.place == fetching:
			if q.wait.lane != nil || q.fetch == nil || len(q.fetch.parts) == 0 {
				return fmt.Errorf("scheduler: request %d has no fetch, or is in a lane", q.req.ID)
			}
		case q.place == following:
			follows := slices.ContainsFunc(q.wait.follow.leader.wait.follow.followers, func(f follower) bool { return f.q == q })
			if q.wait.lane != nil || q.wait.follow.leader.place != running && q.wait.follow.leader.place != fetching || !follows {
				return fmt.Errorf("scheduler: request %d follows %d, which is at place %d", q.req.ID, q.wait.follow.leader.req.ID, q.wait.follow.leader.place)
			}
		case q.place != waiting || q.wait.lane == nil || q.wait.lane.ranked.Items[q.wait.heapAt[byRank]].q != q:
			return fmt.Errorf("scheduler: request %d waits at place %d without its lane", q.req.ID, q.place)
		default:
			lined++
		}
		if len(q.table.pages) > 0 || q.rows.inflight > 0 {
			return fmt.Errorf("scheduler: request %d waits with %d pages and %d rows", q.req.ID, len(q.table.pages), q.rows.inflight)
		}
		if x := &w.index; w.ranksByCache(q) {
			i := q.wait.cached / x.blockTokens
			if missing := (i+1)*x.blockTokens < len(q.tokens); q.wait.index.filed != missing || missing && q.wait.index.block != q.wait.index.chain[i] {
				return fmt.Errorf("scheduler: request %d with %d tokens cached is filed wrongly", q.req.ID, q.wait.cached)
			}
		}
	}
	for i, l := range w.lanes {
		lined -= len(l.ranked.Items)
		if l.at != i || len(l.ranked.Items) == 0 || w.byKey[l.key] != l || w.policy.starves && len(l.aged.Items) != len(l.ranked.Items) {
			return fmt.Errorf("scheduler: lane %d of %d is at %d with %d and %d", i, len(w.lanes), l.at, len(l.ranked.Items), len(l.aged.Items))
		}
		for _, p := range []*seqHeap{&l.ranked, &l.aged, &w.displaceable} {
			for j := 1; j < len(p.Items); j++ {
				if p.Items[j].Before(p.Items[(j-1)/2]) || p.Items[j] != p.order.item(p.Items[j].q) {
					return fmt.Errorf("scheduler: request %d is out of order, or has another key", p.Items[j].q.req.ID)
				}
			}
		}
	}
	if displaceable != len(w.displaceable.Items) {
		return fmt.Errorf("scheduler: %d waiting sequences may be displaced, %d are listed", displaceable, len(w.displaceable.Items))
	}
	if n != w.size || lined != 0 {
		return fmt.Errorf("scheduler: %d sequences wait, counted %d; %d are in no lane or in two", n, w.size, lined)
	}
	return nil
}
