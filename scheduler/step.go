package scheduler

import (
	"cmp"
	"slices"
	"time"
)

// Next plans a step, or returns nil when there is nothing to run: no request is
// open, MaxInflight plans are out, or all wait for pages that the pool was asked
// for, or for what plans in flight will give.
//
// Every running sequence that decodes gets its row first, so that a long prompt
// delays a token by one budget at most; the rest of StepTokens goes to prompts,
// those that were begun and new ones. Call Expire before it where deadlines are
// in use.
func (s *Scheduler) Next(now time.Duration) *Plan {
	if len(s.inflight) >= s.cfg.MaxInflight {
		return nil
	}
	s.pages.demand = 0
	if len(s.open) == 0 {
		return nil
	}
	s.classes.decay()
	s.forgetPins(now)
	s.queue.hear()
	s.queue.noLong = s.longPrompts() >= maxLong
	s.growAll(now)
	p := s.newPlan()
	if s.cfg.Policy == Priority {
		s.giveWay(now, p) // before there are rows, which its victims must not have
	}
	budget := s.decode(p, s.cfg.StepTokens)
	s.admit(now, p, budget)
	s.prefill(now, p, budget)
	if len(p.rows) == 0 {
		s.idle = append(s.idle, p)
		s.verify()
		return nil
	}
	s.planned++
	s.inflight = append(s.inflight, p)
	s.work += uint64(p.tokens)
	s.metrics.Steps++
	s.metrics.Rows += uint64(len(p.rows))
	s.verify()
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

// decodes tells whether q can have a decode row now: its prompt is computed or
// will be, a page is there, and what plans in flight sample does not end it.
func (s *Scheduler) decodes(q *sequence) bool {
	return q.computed >= q.target && q.abort == nil && !q.awaitsToken() &&
		q.outputTokens()+int(q.ahead) < q.limit &&
		q.computed < len(q.pages)*s.info.PageTokens
}

// decode gives each decoding sequence a row of one token, beginning with another
// one each time if the budget is too small for all.
func (s *Scheduler) decode(p *Plan, budget int) int {
	n := len(s.running)
	from := 0
	if n > budget {
		from = s.turn % n
	}
	for i := 0; i < n && budget > 0; i++ {
		q := s.running[(from+i)%n]
		if !s.decodes(q) {
			continue
		}
		p.decode(q, s.info.PageTokens)
		budget--
		s.turn = (from + i + 1) % n
	}
	return budget
}

// oldestShare is what of a budget the prompt that was admitted first gets at
// least, however many shorter ones there are.
func oldestShare(budget int) int { return (budget + 3) / 4 }

// prefill shares the budget among the prompts that are being computed: those with
// least to do first, so that a long one does not hold them up; but the one that was
// admitted first gets its share, so that none starves. While others decode, no
// prompt gets more than a chunk, and long ones get one chunk together: however many
// of them there are, they do not make every step a full one. Their pages are held
// already.
func (s *Scheduler) prefill(now time.Duration, p *Plan, budget int) {
	s.ranked = s.ranked[:0]
	for _, q := range s.filling {
		if q.prefilling() && q.abort == nil {
			s.ranked = append(s.ranked, q)
		}
	}
	if len(s.ranked) == 0 || budget == 0 {
		return
	}
	most, long := budget, budget
	if len(p.rows) > 0 {
		most, long = s.cfg.ChunkTokens, s.cfg.ChunkTokens
	}
	first := s.ranked[0]
	kept := min(oldestShare(budget), s.cfg.costOf(first.target-first.computed, first.computed), most)
	keptLong := 0
	if s.cfg.isLong(first.computed, first.target) {
		kept = min(kept, (long+1)/2)
		keptLong = kept
	}
	slices.SortStableFunc(s.ranked, func(a, b *sequence) int {
		return cmp.Compare(a.target-a.computed, b.target-b.computed)
	})
	for _, q := range s.ranked {
		if q == first {
			kept, keptLong = 0, 0
		}
		share := min(budget-kept, most)
		isLong := s.cfg.isLong(q.computed, q.target)
		if isLong {
			share = min(share, long-keptLong)
		}
		// One token may cost more than is left; only the first one overdraws.
		if share <= 0 || q != first && s.cfg.costOf(1, q.computed) > share {
			continue
		}
		cost := s.chunk(now, p, q, share)
		budget -= cost
		if isLong {
			long -= cost
		}
	}
	clear(s.ranked)
}

// chunk gives q a row for as much of its prompt as the budget pays, and says what
// that cost.
func (s *Scheduler) chunk(now time.Duration, p *Plan, q *sequence, budget int) int {
	n := min(s.tokensFor(budget, q.computed), q.target-q.computed)
	if n == 0 {
		return 0
	}
	if q.computed == q.matched {
		q.mark(now, FirstChunk, n)
	}
	s.metrics.RecomputedTokens += uint64(max(min(q.computed+n, q.reached)-q.computed, 0))
	cost := s.cfg.costOf(n, q.computed)
	p.prefill(q, n, s.info.PageTokens)
	return cost
}
