package scheduler

import (
	"errors"
	"fmt"
	"slices"

	"github.com/coppice-llm/coppice/kv"
)

// Check walks everything: each page has exactly one owner, each open request is
// in exactly one place, each slot is free or one sequence's. It runs after every
// mutation under -tags invariants.
func (s *Scheduler) Check() error {
	errs := []error{s.pages.lease.Check()}
	if s.cache != nil {
		errs = append(errs, s.cache.Check())
		if tree, lease := s.cache.Stats().Pages, s.pages.lease.CachedPages(); tree != lease {
			errs = append(errs, fmt.Errorf("scheduler: the tree holds %d pages, the lease says %d", tree, lease))
		}
	}
	return errors.Join(append(errs, s.checkPages(), s.checkPlaces())...)
}

func (s *Scheduler) checkPages() error {
	owner := make(map[kv.PageID]RequestID)
	for _, q := range s.running {
		for _, id := range q.own() {
			if other, taken := owner[id]; taken {
				return fmt.Errorf("scheduler: page %d is request %d's and request %d's", id, other, q.req.ID)
			}
			if !s.pages.lease.Held(id) {
				return fmt.Errorf("scheduler: request %d uses page %d, which is not held", q.req.ID, id)
			}
			owner[id] = q.req.ID
		}
		for _, id := range q.pages[:q.shared] {
			if s.pages.lease.Held(id) {
				return fmt.Errorf("scheduler: page %d, shared by request %d, is not the tree's", id, q.req.ID)
			}
		}
		if q.computed > len(q.pages)*s.info.PageTokens {
			return fmt.Errorf("scheduler: request %d has %d tokens computed on %d pages", q.req.ID, q.computed, len(q.pages))
		}
	}
	if held := s.pages.lease.HeldPages(); held != len(owner) {
		return fmt.Errorf("scheduler: %d pages are held, requests own %d", held, len(owner))
	}
	return nil
}

func (s *Scheduler) checkPlaces() error {
	samples := 0
	for id, g := range s.open { // any order: only checks
		for _, q := range g.samples {
			if q.req.ID != id || q.place == ended {
				return fmt.Errorf("scheduler: request %d is open with a sample of request %d at place %d", id, q.req.ID, q.place)
			}
		}
		samples += len(g.samples)
	}
	if n := s.queue.size + len(s.running) + len(s.limbo); n != samples {
		return fmt.Errorf("scheduler: %d waiting, %d running and %d returned of %d open", s.queue.size, len(s.running), len(s.limbo), samples)
	}
	if err := s.queue.check(); err != nil {
		return err
	}
	used := make(map[int32]bool)
	for _, slot := range s.slots {
		used[int32(slot)] = true
	}
	filling := 0
	for _, q := range s.running {
		if q.place != running {
			return fmt.Errorf("scheduler: request %d runs, yet is at place %d", q.req.ID, q.place)
		}
		if used[int32(q.slot)] {
			return fmt.Errorf("scheduler: slot %d of request %d is taken twice", q.slot, q.req.ID)
		}
		used[int32(q.slot)] = true
		if q.done < q.target {
			filling++
			if !slices.Contains(s.filling, q) {
				return fmt.Errorf("scheduler: request %d prefills, yet is not listed", q.req.ID)
			}
		} else if len(q.followers) > 0 {
			return fmt.Errorf("scheduler: request %d has computed its prompt, yet %d wait for it", q.req.ID, len(q.followers))
		}
	}
	if filling != len(s.filling) {
		return fmt.Errorf("scheduler: %d prefill, %d are listed", filling, len(s.filling))
	}
	if len(used) != s.cfg.MaxRunning {
		return fmt.Errorf("scheduler: %d slots are accounted for, there are %d", len(used), s.cfg.MaxRunning)
	}
	return s.checkFlights()
}

// checkFlights counts rows in flight.
func (s *Scheduler) checkFlights() error {
	rows := make(map[*sequence]int8)
	for _, p := range s.inflight {
		for i := range p.rows {
			rows[p.rows[i].q]++
		}
	}
	for q, n := range rows { // any order: only checks
		if q.place != ended && q.pending != n {
			return fmt.Errorf("scheduler: request %d has %d rows in flight, counts %d", q.req.ID, n, q.pending)
		}
	}
	for _, q := range s.limbo {
		if q.place != returned || q.pending == 0 {
			return fmt.Errorf("scheduler: request %d waits for %d rows at place %d", q.req.ID, q.pending, q.place)
		}
	}
	return nil
}

// check walks the queue: by age, lanes, who follows whom, and the index.
func (w *queue) check() error {
	n, lined := 0, 0
	for q := w.oldest; q != nil; q = q.newer {
		n++
		if q.newer != nil && q.newer.arrival <= q.arrival {
			return fmt.Errorf("scheduler: request %d waits out of order", q.req.ID)
		}
		switch {
		case q.place == parked:
			follows := slices.ContainsFunc(q.leader.followers, func(f follower) bool { return f.q == q })
			if q.lane != nil || q.leader.place != running || !follows {
				return fmt.Errorf("scheduler: request %d follows %d, which is at place %d", q.req.ID, q.leader.req.ID, q.leader.place)
			}
		case q.place != inLine || q.lane == nil || q.lane.ranked.lined[q.lineAt[byRank]] != q:
			return fmt.Errorf("scheduler: request %d waits at place %d without its lane", q.req.ID, q.place)
		default:
			lined++
		}
		if len(q.pages) > 0 || q.pending > 0 {
			return fmt.Errorf("scheduler: request %d waits with %d pages and %d rows", q.req.ID, len(q.pages), q.pending)
		}
		if x := &w.index; w.interested(q) {
			i := q.cached / x.blockTokens
			if missing := (i+1)*x.blockTokens < len(q.tokens); q.filed != missing || missing && q.block != q.chain[i] {
				return fmt.Errorf("scheduler: request %d with %d tokens cached is filed wrongly", q.req.ID, q.cached)
			}
		}
	}
	for i, l := range w.lanes {
		lined -= len(l.ranked.lined)
		if l.at != i || len(l.ranked.lined) == 0 || w.byKey[l.key] != l || w.needsOldest() && len(l.aged.lined) != len(l.ranked.lined) {
			return fmt.Errorf("scheduler: lane %d of %d is at %d with %d and %d", i, len(w.lanes), l.at, len(l.ranked.lined), len(l.aged.lined))
		}
		for _, p := range []*pile{&l.ranked, &l.aged} {
			for j := 1; j < len(p.lined); j++ {
				if p.order.before(p.lined[j], p.lined[(j-1)/2]) {
					return fmt.Errorf("scheduler: request %d is behind one that it precedes", p.lined[j].req.ID)
				}
			}
		}
	}
	if n != w.size || lined != 0 {
		return fmt.Errorf("scheduler: %d wait, counted %d, %d of them in no lane or in two", n, w.size, lined)
	}
	return nil
}
