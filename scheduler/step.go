package scheduler

import "time"

// Next plans a step, or returns nil when there is nothing to run: no request is open,
// MaxInflight plans are in flight, or all requests wait for pages or for plans in flight.
//
// The order within a step: decoding sequences get pages; waiting sequences are admitted,
// which under the policy Priority may preempt; prompts share the budget that decode rows
// leave, and at least PromptFloor; then rows are made, decode rows first. So a long prompt
// delays a token by one budget at most. For example, with StepTokens 256 and 60 decoding
// sequences, prompts get 196.
//
// Call Expire before Next where time limits are in use: Next does not check them.
func (s *Scheduler) Next(now time.Duration) *Plan {
	if len(s.plans.inflight) >= s.cfg.MaxInflight {
		return nil
	}
	if s.drafter.holds(&s.plans) {
		return nil
	}
	s.room.demand = 0
	if s.fetches != nil {
		s.fetches.tick(now)
	}
	if s.cache != nil {
		s.cache.Tick(now)
		s.tickSessions(now)
		s.tiers.stepParks(now)
	}
	if len(s.open) == 0 {
		return s.planMoves(now)
	}
	s.lengths.Decay()
	s.prefixes.expire(now)
	s.queue.rerankPublished()
	s.queue.lastLong = s.cfg.lastLong(s.running.prefilling)
	s.drafter.read()
	s.grow(now)
	p := s.plans.take()
	s.admit(now, p)
	s.drafter.choose()
	cost := 0
	if len(s.running.prefilling) > 0 {
		cost = s.budget.share(s.running.prefilling, s.budget.count(&s.running))
	}
	s.running.decode(p, s.cfg.StepTokens-cost)
	s.prefill(now, p)
	if s.tiers != nil {
		s.fetches.ahead(now, s.work)
		s.tiers.next(now, p)
	}
	if len(p.rows)+len(p.Moves) == 0 {
		s.plans.spare = append(s.plans.spare, p)
		s.verify()
		return nil
	}
	return s.launch(p)
}

// planMoves is called while no request is open. It returns a plan with the moves between
// tiers that are due, and without rows; nil if there are none.
func (s *Scheduler) planMoves(now time.Duration) *Plan {
	if s.tiers == nil {
		return nil
	}
	p := s.plans.take()
	if s.tiers.next(now, p); len(p.Moves) == 0 {
		s.plans.spare = append(s.plans.spare, p)
		return nil
	}
	return s.launch(p)
}

// launch completes a plan with moves, mask drops and page swaps, and puts it in flight. It
// advances Scheduler.work by the plan's tokens.
func (s *Scheduler) launch(p *Plan) *Plan {
	if s.tiers != nil {
		s.tiers.plan(p)
	}
	s.plans.masks.Expire(&p.Batch)
	p.Batch.Swaps, s.room.swaps = append(p.Batch.Swaps, s.room.swaps...), s.room.swaps[:0]
	s.plans.last++
	s.plans.inflight = append(s.plans.inflight, p)
	s.work += uint64(p.tokens)
	s.metrics.Steps++
	s.metrics.Rows += uint64(len(p.rows))
	s.verify()
	return p
}

// decodes reports whether q can have a decode row now: its prompt is computed or in flight,
// it has a page for the token, and its mask and its end do not depend on a token in flight.
func (q *sequence) decodes(pageTokens int) bool {
	return q.wantsRow() && !q.awaitsToken() && q.computed < len(q.table.pages)*pageTokens
}

// decode gives decoding sequences a row of one token each in p, at most as many rows as
// budget says. If that is too small for all, it begins where the last step stopped, so that
// all get the same rate: with 256 sequences and a budget of 192, each gets a row in three
// steps of four.
func (r *runningSet) decode(p *Plan, budget int) {
	n := len(r.all)
	at := 0
	if n > budget {
		at = r.next % n
	}
	for i := 0; i < n && budget > 0; i++ {
		q := r.all[at]
		if at++; at == n {
			at = 0
		}
		if q.decodes(r.pageTokens) {
			p.decode(q)
			budget -= 1 + q.draftsInFlight()
			r.next = at
		}
	}
}

// prefill adds to p the rows of the chunks that share has set. Their pages were taken at
// admission. RecomputedTokens counts the part of a chunk below the position that the
// sequence had reached before a preemption.
func (s *Scheduler) prefill(now time.Duration, p *Plan) {
	for _, c := range s.budget.chunks {
		q, n := c.q, c.tokens
		if q.computed == q.cache.matched {
			q.bill.mark(now, FirstChunk, n)
		}
		s.metrics.PrefillTokens += uint64(n)
		s.metrics.RecomputedTokens += uint64(max(min(q.computed+n, q.bill.reached)-q.computed, 0))
		q.bill.count(q.computed, q.computed+n, q.prompt)
		p.prefill(q, n)
	}
	clear(s.budget.chunks)
	s.budget.chunks = s.budget.chunks[:0]
}
