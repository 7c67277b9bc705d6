package scheduler

import (
	"time"
)

// Next plans a step, or returns nil when there is nothing to run: no request is
// open, a plan is running, or all wait for pages that the pool was asked for.
//
// Every running sequence that decodes gets its row first, so that a long prompt
// delays a token by one budget at most; the rest of StepTokens goes to prompts
// that are being computed, oldest first, then to waiting ones.
func (s *Scheduler) Next(now time.Duration) *Plan {
	if s.inflight != nil {
		return nil
	}
	s.pages.demand = 0
	if len(s.open) == 0 {
		return nil
	}
	p := s.newPlan()
	budget := s.decode(p, s.cfg.StepTokens)
	budget = s.prefill(p, budget)
	s.admit(now, p, budget)
	s.verify()
	if len(p.rows) == 0 {
		s.idle = append(s.idle, p)
		return nil
	}
	for i, q := range p.rows {
		s.metrics.RecomputedTokens += uint64(max(min(q.computed, q.reached)-p.starts[i], 0))
	}
	s.planned++
	s.inflight = p
	s.metrics.Steps++
	s.metrics.Rows += uint64(len(p.rows))
	return p
}

func (s *Scheduler) newPlan() *Plan {
	var p *Plan
	if n := len(s.idle); n > 0 {
		p, s.idle = s.idle[n-1], s.idle[:n-1]
	} else {
		p = new(Plan)
	}
	p.reset(s.planned + 1)
	return p
}

// decode gives each decoding sequence a row of one token. Sequences may be
// preempted for one another's pages, always from the young end, so those that
// have a row already keep it.
func (s *Scheduler) decode(p *Plan, budget int) int {
	for i := 0; i < len(s.running) && budget > 0; i++ {
		q := s.running[i]
		if q.prefilling() || !s.grow(q) {
			continue
		}
		p.add(q, 1, s.info.PageTokens)
		budget--
	}
	return budget
}

// prefill continues the prompts that were admitted before. Their pages are held
// already.
func (s *Scheduler) prefill(p *Plan, budget int) int {
	for _, q := range s.running {
		if budget == 0 {
			break
		}
		if q.prefilling() && !q.inPlan {
			n := min(budget, q.target-q.computed)
			p.add(q, n, s.info.PageTokens)
			budget -= n
		}
	}
	return budget
}
