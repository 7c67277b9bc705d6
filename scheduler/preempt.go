package scheduler

// grow makes sure that q has a page for its next token. If none is to be had, it
// preempts the youngest sequences, in the end q itself, so that the oldest always
// goes on: preemption can't cycle. It returns false if q gets no row in this step.
func (s *Scheduler) grow(q *sequence) bool {
	if q.computed < len(q.pages)*s.info.PageTokens {
		return true
	}
	for !s.room(1) {
		if s.pages.waitsForGrant() {
			return false
		}
		victim := s.running[len(s.running)-1]
		s.preempt(victim)
		if victim == q {
			return false
		}
	}
	q.pages, _ = s.pages.lease.Hold(1, q.pages)
	return true
}

// preempt takes a sequence off the device and back into the queue, by its age.
// Its valid KV goes to the cache as evictable, so that resuming costs only what
// was evicted meanwhile; its output is kept.
func (s *Scheduler) preempt(q *sequence) {
	q.reached = max(q.reached, q.computed)
	s.leave(q, q.computed)
	q.preemptions++
	s.metrics.Preemptions++
	s.enqueue(q)
}
