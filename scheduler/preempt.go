package scheduler

import (
	"slices"
	"time"
)

// growAll gives every decoding sequence that needs a page for its next token one.
// When there are not enough, somebody is preempted.
func (s *Scheduler) growAll(now time.Duration) {
	short := 0
	for _, q := range s.running {
		if s.full(q) {
			short++
		}
	}
	if short == 0 {
		return
	}
	if !s.room(short) {
		s.makeRoom(now)
		return
	}
	for _, q := range s.running {
		if s.full(q) {
			q.pages, _ = s.pages.lease.Hold(1, q.pages)
		}
	}
}

// full: q decodes, and its next token needs a page that it has not.
func (s *Scheduler) full(q *sequence) bool {
	return q.computed >= q.target && q.computed == len(q.pages)*s.info.PageTokens &&
		q.abort == nil && q.outputTokens()+int(q.ahead) < q.limit
}

// makeRoom finds pages one by one, the most senior sequence first, and preempts
// where there are none. Who finds neither page nor victim gets no row in this step.
func (s *Scheduler) makeRoom(now time.Duration) {
	s.ranked = append(s.ranked[:0], s.running...)
	slices.SortFunc(s.ranked, func(a, b *sequence) int {
		if a.senior(b) {
			return -1
		}
		return 1
	})
	for _, q := range s.ranked {
		for q.place == running && s.full(q) {
			if s.room(1) {
				q.pages, _ = s.pages.lease.Hold(1, q.pages)
				break
			}
			if s.pages.waitsForGrant() {
				break
			}
			victim := s.victim(s.ranked[0])
			if victim == nil {
				break // all others were preempted before and have not moved since
			}
			s.preempt(now, victim)
		}
	}
	clear(s.ranked)
}

// victim is who makes room: of the lowest priority the one that loses least of what
// is its own work, since what it shares stays with others; of equals the youngest.
// The most senior one goes on always, and one that was preempted before has to
// have sampled a token since, so that preemption can't cycle.
func (s *Scheduler) victim(senior *sequence) *sequence {
	var victim *sequence
	for _, q := range s.running {
		if q == senior || q.preemptions > 0 && q.sampled == 0 || q.abort != nil {
			continue
		}
		if victim == nil || s.cheaper(q, victim) {
			victim = q
		}
	}
	return victim
}

func (s *Scheduler) cheaper(a, b *sequence) bool {
	if a.req.Priority != b.req.Priority {
		return a.req.Priority < b.req.Priority
	}
	if la, lb := a.done-a.matched, b.done-b.matched; la != lb {
		return la < lb
	}
	return a.arrival > b.arrival
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
	s.metrics.Preemptions++
	s.classes.caution()
	if q.pending > 0 {
		q.place = returned
		s.limbo = append(s.limbo, q)
		return
	}
	s.enqueue(q)
}

// resume puts a preempted sequence whose rows have come back into the queue.
func (s *Scheduler) resume(q *sequence) {
	s.limbo = remove(s.limbo, q)
	s.enqueue(q)
}
