package scheduler

import (
	"container/heap"
	"time"
)

// expiries are the sequences that a time limit ends, soonest first.
type expiries []*sequence

func (x expiries) Len() int { return len(x) }
func (x expiries) Less(i, j int) bool {
	if x[i].expires != x[j].expires {
		return x[i].expires < x[j].expires
	}
	return x[i].arrival < x[j].arrival
}
func (x expiries) Swap(i, j int) {
	x[i], x[j] = x[j], x[i]
	x[i].expiry, x[j].expiry = i+1, j+1
}
func (x *expiries) Push(v any) {
	q := v.(*sequence)
	*x = append(*x, q)
	q.expiry = len(*x)
}
func (x *expiries) Pop() any {
	q := (*x)[len(*x)-1]
	(*x)[len(*x)-1] = nil
	*x = (*x)[:len(*x)-1]
	q.expiry = 0
	return q
}

// file files q under the time at which its next limit ends it.
func (x *expiries) file(q *sequence) {
	at, some := q.req.Deadline, q.req.Deadline > 0
	// The sum of times overflows where a timeout is as good as none.
	if t := q.arrived + q.req.QueueTimeout; q.req.QueueTimeout > 0 && t > 0 && !q.seenSlot && (!some || t < at) {
		at, some = t, true
	}
	switch {
	case some && q.expiry > 0:
		q.expires = at
		heap.Fix(x, q.expiry-1)
	case some:
		q.expires = at
		heap.Push(x, q)
	default:
		x.drop(q)
	}
}

// drop takes q out, if it is in.
func (x *expiries) drop(q *sequence) {
	if q.expiry > 0 {
		heap.Remove(x, q.expiry-1)
	}
}

// NextExpiry is when the next time limit of an open request ends it, or a fetch for one, if
// any does; with Config.Tiers also when a conversation is idle.
func (s *Scheduler) NextExpiry() (time.Duration, bool) {
	var at time.Duration
	some := len(s.expiries) > 0
	if some {
		at = s.expiries[0].expires
	}
	if s.fetches != nil {
		if t, due := s.fetches.nextWake(); due && (!some || t < at) {
			at, some = t, true
		}
	}
	return at, some
}

// Expire ends what is past its deadline or queue timeout by now, with Reason Abort
// and ErrDeadline or ErrQueueTimeout. A sample whose row is running ends when the
// plan completes.
func (s *Scheduler) Expire(now time.Duration, out []Output) []Output {
	some := false
	if s.fetches != nil {
		s.fetches.tick(now)
	}
	for len(s.expiries) > 0 && s.expiries[0].expires <= now {
		q := s.expiries[0]
		s.expiries.drop(q)
		err := ErrQueueTimeout
		if d := q.req.Deadline; d > 0 && d <= now {
			err = ErrDeadline
		}
		if q.abort == nil {
			s.metrics.Expired++
		}
		out = s.abortSample(now, q, err, out)
		some = true
	}
	if some {
		s.verify()
	}
	return out
}
