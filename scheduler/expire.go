package scheduler

import (
	"time"

	"github.com/coppice-llm/coppice/internal/heap"
)

// expiries are the sequences with a time limit, in a heap by time: the next expiry costs
// O(1).
type expiries struct {
	heap.Heap[expiry, expiryPlaces]
}

// expiry is a sequence and the time at which a limit ends it. Of equal times, the sequence
// that was added first comes first.
type expiry struct {
	at      time.Duration
	arrival uint64
	q       *sequence
}

// Before implements heap.Element.
func (a expiry) Before(b expiry) bool { return a.at < b.at || a.at == b.at && a.arrival < b.arrival }

// expiryPlaces tells sequences their place in the heap.
type expiryPlaces struct{}

// Place implements heap.Places.
func (expiryPlaces) Place(x expiry, at int) { x.q.expiry = at + 1 }

// file sets the time at which q's next limit ends it: the deadline, or before first
// admission the queue timeout if that is sooner. Without a limit, q leaves the heap.
func (x *expiries) file(q *sequence) {
	at, some := q.req.Deadline, q.req.Deadline > 0
	// A sum that overflows is negative; so long a timeout is as good as none.
	if t := q.bill.arrived + q.req.QueueTimeout; q.req.QueueTimeout > 0 && t > 0 && !q.bill.seenSlot && (!some || t < at) {
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

// drop removes q if it is in the heap.
func (x *expiries) drop(q *sequence) {
	if q.expiry > 0 {
		x.Remove(expiryPlaces{}, q.expiry-1)
		q.expiry = 0
	}
}

// NextExpiry returns the next time at which Expire has something to do: a time limit of an
// open request or of a fetch ends, with Config.Tiers a conversation becomes idle, or an
// expected turn must be prepared or given up. It reports false if there is none. A shell sets its timer by it.
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
	if t, due := s.tiers.nextPark(); due && (!some || t < at) {
		at, some = t, true
	}
	if e := s.sessions.expected; len(e) > 0 && (!some || e[0].wake() < at) {
		at, some = e[0].wake(), true
	}
	return at, some
}

// Expire ends the samples whose deadline or queue timeout has passed, with Reason Abort
// and ErrDeadline or ErrQueueTimeout. If both have passed, the error is ErrDeadline. A
// sample with a row in flight ends when the plan completes.
func (s *Scheduler) Expire(now time.Duration, out []Output) []Output {
	some := false
	if s.fetches != nil {
		s.fetches.tick(now)
	}
	s.tickSessions(now)
	s.tiers.stepParks(now)
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
