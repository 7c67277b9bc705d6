package scheduler

import (
	"time"

	"github.com/coppice-llm/coppice/internal/heap"
)

// expiries are the sequences that a time limit ends, soonest first.
type expiries struct {
	heap.Heap[expiry, expiryPlaces]
}

// expiry is a sequence by the time at which it ends, equal ones by age.
type expiry struct {
	at      time.Duration
	arrival uint64
	q       *sequence
}

// Before implements heap.Element.
func (a expiry) Before(b expiry) bool { return a.at < b.at || a.at == b.at && a.arrival < b.arrival }

type expiryPlaces struct{}

// Place implements heap.Places.
func (expiryPlaces) Place(x expiry, at int) { x.q.expiry = at + 1 }

// file files q under the time at which its next limit ends it.
func (x *expiries) file(q *sequence) {
	at, some := q.req.Deadline, q.req.Deadline > 0
	// The sum of times overflows where a timeout is as good as none.
	if t := q.arrived + q.req.QueueTimeout; q.req.QueueTimeout > 0 && t > 0 && !q.seenSlot && (!some || t < at) {
		at, some = t, true
	}
	switch e := (expiry{at, q.arrival, q}); {
	case some && q.expiry > 0:
		x.Set(expiryPlaces{}, q.expiry-1, e)
	case some:
		x.Push(expiryPlaces{}, e)
	default:
		x.drop(q)
	}
}

// drop takes q out, if it is in.
func (x *expiries) drop(q *sequence) {
	if q.expiry > 0 {
		x.Remove(expiryPlaces{}, q.expiry-1)
		q.expiry = 0
	}
}

// NextExpiry is when the next time limit of an open request ends it, or a fetch for one, if
// any does; with Config.Tiers also when a conversation is idle.
func (s *Scheduler) NextExpiry() (time.Duration, bool) {
	var at time.Duration
	some := len(s.expiries.Items) > 0
	if some {
		at = s.expiries.Items[0].at
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
	for len(s.expiries.Items) > 0 && s.expiries.Items[0].at <= now {
		q := s.expiries.Items[0].q
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
