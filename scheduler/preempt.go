package scheduler

import (
	"slices"
	"time"
)

// grow gives each decoding sequence a page if its next token needs one: with pages of 16,
// a sixteenth of the sequences in an average step. It also counts the sequences that will
// decode. If there are not enough pages, growByPreempting decides which sequences get
// them.
func (s *Scheduler) grow(now time.Duration) {
	pageTokens, short, decoding, context := s.info.PageTokens, 0, 0, 0
	for _, q := range s.running.all {
		switch {
		case !q.wantsRow():
		case q.computed == len(q.pages)*pageTokens:
			short++
		case !q.awaitsToken():
			decoding++
			context += q.computed
		}
	}
	s.budget.decoding, s.budget.context = decoding, int64(context)
	if short == 0 {
		return
	}
	if !s.take(short) {
		s.growByPreempting(now)
		s.budget.decoding = -1
		return
	}
	for _, q := range s.running.all {
		if q.wantsRow() && q.computed == len(q.pages)*pageTokens {
			q.pages = s.room.hold(1, q.pages)
			if !q.awaitsToken() {
				s.budget.decoding++
				s.budget.context += int64(q.computed)
			}
		}
	}
}

// wantsRow reports whether q decodes, and will after the samples in flight: none of these
// reaches its limit.
func (q *sequence) wantsRow() bool {
	return q.computed >= q.target && q.abort == nil && q.outputTokens()+int(q.sampling) < q.limit
}

// full reports whether q decodes and needs a page for its next token.
func (q *sequence) full(pageTokens int) bool {
	return q.wantsRow() && q.computed == len(q.pages)*pageTokens
}

// growByPreempting finds pages one by one, for the first sequence in precedence first, and
// preempts where there are none. A sequence that finds neither a page nor a victim gets no
// row in this step. The first in precedence is never preempted, so at least one sequence
// always makes progress.
func (s *Scheduler) growByPreempting(now time.Duration) {
	order := append(s.room.growing[:0], s.running.all...)
	slices.SortFunc(order, comparePrecedence)
	for _, q := range order {
		if q.place == running && q.full(s.info.PageTokens) {
			s.growOne(now, q, order[0])
		}
	}
	clear(order)
	s.room.growing = order
}

// growOne gives q a page, if need be from a sequence of no higher priority, which may be q
// itself.
func (s *Scheduler) growOne(now time.Duration, q, first *sequence) {
	if !s.take(1) {
		d := demand{q: q, pages: 1, spared: first}
		if !s.preemptFor(now, &d) || q.place != running || !s.room.take(1) {
			return
		}
	}
	q.pages = s.room.hold(1, q.pages)
}

// preemptFor preempts the victims of d, if they free all that d lacks and the pool has
// nothing to give. It reports whether it preempted any. It waits rather than preempt if
// reads in flight will free enough.
func (s *Scheduler) preemptFor(now time.Duration, d *demand) bool {
	o := s.room.supply(d)
	if o.granting && o.idle < d.pages+d.reserve {
		return false
	}
	if s.tiers != nil && o.fitsOnce(d, s.tiers.coming) {
		return false // reads in flight free enough
	}
	s.room.preempting(d, &o, s.running.victims(d, s.plans.last))
	for i, r := range o.victims {
		s.preempt(now, r)
		o.victims[i] = nil
	}
	return len(o.victims) > 0
}

// preempt takes a sequence off the device and puts it back into the queue, by its age
// (SGLang: retract). Its valid KV becomes evictable cache, so that resuming it costs only
// what was evicted meanwhile; it keeps its output. If a row is in flight, the token that
// it samples still counts, and the sequence is queued when the row has ended.
func (s *Scheduler) preempt(now time.Duration, q *sequence) {
	q.reached = max(q.reached, q.computed) // rows in flight run, although their KV is dropped
	q.mark(now, Preempted, q.done)
	s.leave(q, q.done)
	q.preemptions++
	s.budget.decoding = -1
	s.metrics.Preemptions++
	s.classes.caution()
	if q.inflight > 0 {
		q.place = preempted
		s.running.preempted = append(s.running.preempted, q)
		return
	}
	s.queue.enqueue(q)
}
