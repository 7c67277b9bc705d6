package server

import (
	"sync"
	"time"
)

// pace chooses Retry-After for refused requests. It averages the gap between ends of requests
// and assigns each refused caller a different expected end: the first one the next end, the
// tenth the tenth. So they do not all retry at once. Example: with an end every 2 s, three
// refused callers get 2, 4 and 6 s.
type pace struct {
	mu     sync.Mutex
	last   time.Time     // time of the latest end of a request
	gap    time.Duration // running mean of the time between ends, weight 1/16
	booked time.Time     // the latest expected end that was given to a caller
}

// minRetry and maxRetry bound Retry-After, in seconds.
const minRetry, maxRetry = 1, 60

// ended records the end of a request.
func (p *pace) ended(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.last.IsZero() {
		gap := now.Sub(p.last)
		if p.gap == 0 {
			p.gap = gap
		}
		p.gap += (gap - p.gap) / 16
	}
	p.last = now
}

// retryAfter books the next expected end and returns the seconds until then, rounded up.
func (p *pace) retryAfter(now time.Time) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	gap := p.gap
	if gap == 0 {
		gap = time.Second // no two requests have ended so far
	}
	if p.booked.Before(now) {
		p.booked = now
	}
	if most := now.Add(maxRetry * time.Second); p.booked.Before(most) {
		p.booked = p.booked.Add(gap)
	}
	seconds := int((p.booked.Sub(now) + time.Second - 1) / time.Second)
	return min(max(seconds, minRetry), maxRetry)
}
