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
		case q.computed == len(q.table.pages)*pageTokens:
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
	if !s.room.take(short) && !s.fetches.giveWay(short) {
		s.growByPreempting(now)
		s.budget.decoding = -1
		return
	}
	for _, q := range s.running.all {
		if q.wantsRow() && q.computed == len(q.table.pages)*pageTokens {
			q.table.pages = s.room.hold(1, q.table.pages)
			if !q.awaitsToken() {
				s.budget.decoding++
				s.budget.context += int64(q.computed)
			}
		}
	}
}

// wantsRow reports whether q decodes and will need another token: the tokens in flight do
// not reach its output limit yet, it is not aborted, and no drafts of it are in flight.
func (q *sequence) wantsRow() bool {
	return q.computed >= q.target && q.abort == nil && q.outputTokens()+int(q.rows.sampling) < q.limit && q.draftsInFlight() == 0
}

// full reports whether q decodes and needs a page for its next token.
func (q *sequence) full(pageTokens int) bool {
	return q.wantsRow() && q.computed == len(q.table.pages)*pageTokens
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

// growOne gives q a page, if need be by preempting sequences of no higher priority than q.
// q itself may be preempted, but never first, the first running sequence in precedence. If
// there is no page and no victim, growOne does nothing.
func (s *Scheduler) growOne(now time.Duration, q, first *sequence) {
	if !s.room.take(1) && !s.fetches.giveWay(1) {
		d := demand{q: q, pages: 1, spared: first}
		if !s.preemptFor(now, &d) || q.place != running || !s.room.take(1) {
			return
		}
	}
	q.table.pages = s.room.hold(1, q.table.pages)
}

// preemptFor preempts running sequences if that frees all that d lacks, and reports whether
// it preempted any. It preempts none if the pool may still give the pages, or if reads in
// flight will free enough of them.
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

// preempt takes q off the device and puts it back into the queue, at the place that its age
// gives (SGLang: retract). The valid KV of q becomes evictable cache, so that resuming q
// costs only what was evicted meanwhile; q keeps its output tokens. If a row of q is in
// flight, the token that the row samples still counts, and q is queued when the row has
// ended.
func (s *Scheduler) preempt(now time.Duration, q *sequence) {
	q.bill.reached = max(q.bill.reached, q.computed-q.draftsInFlight()) // rows in flight run, although their KV is dropped
	q.bill.mark(now, Preempted, q.done)
	s.leave(q, q.done)
	q.bill.preemptions++
	s.budget.decoding = -1
	s.metrics.Preemptions++
	s.lengths.Caution()
	if q.rows.inflight > 0 {
		q.place = preempted
		s.running.preempted = append(s.running.preempted, q)
		return
	}
	s.queue.enqueue(q)
}
