package scheduler

import (
	"slices"
	"time"
)

// grow gives every decoding sequence that needs a page for its next token one. When
// there are not enough, sequences are preempted.
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

// wantsRow reports whether q decodes, and what plans in flight sample does not end it.
func (q *sequence) wantsRow() bool {
	return q.computed >= q.target && q.abort == nil && q.outputTokens()+int(q.sampling) < q.limit
}

// full reports whether q decodes and its next token needs a page that it has not.
func (q *sequence) full(pageTokens int) bool {
	return q.wantsRow() && q.computed == len(q.pages)*pageTokens
}

// growByPreempting finds pages one by one, for the first sequence in precedence
// first, and preempts where there are none. A sequence that finds neither page nor
// victim gets no row in this step. The first one always goes on.
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

// growOne gives q a page, if need be one of a sequence that does not precede it by
// priority.
func (s *Scheduler) growOne(now time.Duration, q, first *sequence) {
	if !s.take(1) {
		d := demand{q: q, pages: 1, spared: first}
		if !s.preemptFor(now, &d) || q.place != running || !s.room.take(1) {
			return
		}
	}
	q.pages = s.room.hold(1, q.pages)
}

// preemptFor preempts the sequences that are in d's way, if that gives all that it
// lacks and the pool has nothing more to give.
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

// preempt takes a sequence off the device and back into the queue, by its age.
// Its valid KV goes to the cache as evictable, so that resuming costs only what
// was evicted meanwhile; its output is kept. What a plan in flight samples for it
// still counts; until then it waits apart.
func (s *Scheduler) preempt(now time.Duration, q *sequence) {
	q.reached = max(q.reached, q.computed) // rows in flight run, though their KV is dropped
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
