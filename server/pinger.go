package server

import "time"

// pinger says when a stream that has nothing to send must send a ping, so that clients and proxies do not take it for dead.
type pinger struct {
	timer *time.Timer
	every time.Duration
	quiet time.Duration // from since until the next ping
	since time.Time     // of the last write, or of the beginning
}

// queuedPings is how many intervals pass before the first ping of a request that waits in the queue. Until then an error has an HTTP status
// of its own, by which clients try again, and a gateway may ask another worker.
const queuedPings = 3

func newPinger(every time.Duration) pinger {
	quiet := queuedPings * every
	return pinger{timer: time.NewTimer(quiet), every: every, quiet: quiet, since: time.Now()}
}

// admitted notes that the request is being computed.
func (p *pinger) admitted(now time.Time) {
	p.wrote(now)
	p.timer.Reset(p.every)
}

// wrote notes that something was sent. It leaves the timer alone, as it is called for each token.
func (p *pinger) wrote(now time.Time) { p.since, p.quiet = now, p.every }

// due is called when the timer has fired. It sets the timer again, and reports whether a ping is due now.
func (p *pinger) due(now time.Time) bool {
	left := p.quiet - now.Sub(p.since)
	if left > 0 {
		p.timer.Reset(left)
		return false
	}
	p.wrote(now)
	p.timer.Reset(p.every)
	return true
}
