package server

import (
	"sync"
	"time"
)

// pace says when somebody who was refused should come again. It watches how long
// requests take to end, one after another, and gives each who is refused an end of its
// own: the first one the next, the tenth the tenth. So they do not all come back at once.
type pace struct {
	mu     sync.Mutex
	last   time.Time     // when a request ended
	gap    time.Duration // between two ends, on average
	booked time.Time     // the end that was given away last
}

// Between the shortest and the longest time that anybody is told, in seconds.
const leastRetry, mostRetry = 1, 60

// ended notes that a request ended.
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

// retryAfter gives the next end away, in whole seconds from now on.
func (p *pace) retryAfter(now time.Time) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	gap := p.gap
	if gap == 0 {
		gap = time.Second // nobody has ended so far
	}
	if p.booked.Before(now) {
		p.booked = now
	}
	if most := now.Add(mostRetry * time.Second); p.booked.Before(most) {
		p.booked = p.booked.Add(gap)
	}
	seconds := int((p.booked.Sub(now) + time.Second - 1) / time.Second)
	return min(max(seconds, leastRetry), mostRetry)
}
