package server

import (
	"sync"
	"time"
)

// retryTimes chooses Retry-After for refused requests. It averages the gap between ends of requests
// and assigns each refused caller a different expected end: the first one the next end, the
// tenth the tenth. So they do not all retry at once. Example: with an end every 2 s, three
// refused callers get 2, 4 and 6 s.
type retryTimes struct {
	mu     sync.Mutex
	last   time.Time     // time of the latest end of a request
	gap    time.Duration // running mean of the time between ends, weight 1/16
	booked time.Time     // the latest expected end that was given to a caller
}

// minRetry and maxRetry bound Retry-After, in seconds.
const minRetry, maxRetry = 1, 60

// ended records the end of a request.
func (r *retryTimes) ended(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.last.IsZero() {
		gap := now.Sub(r.last)
		if r.gap == 0 {
			r.gap = gap
		}
		r.gap += (gap - r.gap) / 16
	}
	r.last = now
}

// after books the next expected end and returns the seconds until then, rounded up.
func (r *retryTimes) after(now time.Time) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	gap := r.gap
	if gap == 0 {
		gap = time.Second // no two requests have ended so far
	}
	if r.booked.Before(now) {
		r.booked = now
	}
	if most := now.Add(maxRetry * time.Second); r.booked.Before(most) {
		r.booked = r.booked.Add(gap)
	}
	seconds := int((r.booked.Sub(now) + time.Second - 1) / time.Second)
	return min(max(seconds, minRetry), maxRetry)
}
