package scheduler

import (
	"errors"
	"fmt"

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
	if len(s.waiting)+len(s.running) != len(s.open) {
		return fmt.Errorf("scheduler: %d waiting and %d running of %d open", len(s.waiting), len(s.running), len(s.open))
	}
	for i, q := range s.waiting {
		if s.open[q.req.ID] != q || q.admitted || len(q.pages) > 0 {
			return fmt.Errorf("scheduler: request %d waits, yet is not open or holds pages", q.req.ID)
		}
		if i > 0 && s.waiting[i-1].arrival >= q.arrival {
			return fmt.Errorf("scheduler: request %d waits out of order", q.req.ID)
		}
	}
	used := make(map[int32]bool)
	for _, slot := range s.slots {
		used[int32(slot)] = true
	}
	for _, q := range s.running {
		if s.open[q.req.ID] != q || !q.admitted {
			return fmt.Errorf("scheduler: request %d runs, yet is not open", q.req.ID)
		}
		if used[int32(q.slot)] {
			return fmt.Errorf("scheduler: slot %d of request %d is taken twice", q.slot, q.req.ID)
		}
		used[int32(q.slot)] = true
	}
	if len(used) != s.cfg.MaxRunning {
		return fmt.Errorf("scheduler: %d slots are accounted for, there are %d", len(used), s.cfg.MaxRunning)
	}
	return nil
}
