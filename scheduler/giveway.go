package scheduler

import (
	"slices"
	"time"
)

// giveWay is what the policy Priority has beyond an order: the best waiting request
// takes the place of running ones of lower priority, if that makes the slot or the
// pages which it lacks, and starts at once.
func (s *Scheduler) giveWay(now time.Duration, p *Plan) {
	q := s.queue.best(s.work)
	if q == nil || !s.hasBudget(s.cfg.StepTokens) {
		return
	}
	if b := s.blocked; b != nil && b != q && b.req.Priority < q.req.Priority {
		s.blocked = nil // what is kept free is for the higher one first
	}
	m, _, boundary := s.found(q)
	if leader, _ := s.leaderOf(q, m.Tokens+boundary); leader != nil || s.queue.shutOut(q) || s.blocked != nil && s.blocked != q {
		return // it waits for other things than room
	}
	shared := m.Tokens / s.info.PageTokens
	need := s.pagesFor(q) + s.reserve(q)
	gain := s.pages.lease.IdlePages()
	if s.cache != nil {
		gain += max(s.cache.EvictablePages()-shared, 0) // what it matched it does not evict
	}
	if gain < need && s.pages.waitsForGrant() {
		s.pages.demand = max(s.pages.demand, need)
		return
	}
	slots := len(s.slots)
	if slots > 0 && gain >= need {
		return // admission finds room by itself
	}
	s.ranked = s.ranked[:0]
	for _, r := range s.running {
		if r.req.Priority < q.req.Priority && r.abort == nil && !(r.preemptions > 0 && r.sampled == 0) {
			s.ranked = append(s.ranked, r)
		}
	}
	slices.SortFunc(s.ranked, func(a, b *sequence) int {
		if s.cheaper(a, b) {
			return -1
		}
		return 1
	})
	victims := 0
	for _, r := range s.ranked {
		if slots > 0 && gain >= need {
			break
		}
		gain += len(r.pages) - r.matched/s.info.PageTokens // its own work; what it found others may use
		slots++
		victims++
	}
	if slots > 0 && gain >= need { // all or nobody
		for _, r := range s.ranked[:victims] {
			s.preempt(now, r)
		}
		if q.lane != nil { // not if it follows one that has just gone
			s.try(now, p, q)
		}
	}
	clear(s.ranked)
}
