package actors

import (
	"sync"
	"time"
)

// alarm calls ring at the earliest time that was set: one timer for any number of time limits.
// One actor owns it. ring runs on the timer's goroutine; stop waits for it.
type alarm struct {
	ring    func()
	timer   *time.Timer
	at      time.Duration // when it rings, on the owner's clock
	armed   bool          // set and has not rung since
	ringing sync.WaitGroup
}

// wakeAt makes the alarm ring at the time at, unless it is set to ring earlier already:
// after the early ring the owner sets the alarm again. now is the present time on the
// owner's clock.
func (a *alarm) wakeAt(now, at time.Duration) {
	if a.armed && a.at <= at {
		return
	}
	a.at, a.armed = at, true
	wait := max(at-now, 0)
	a.ringing.Add(1) // before the timer can fire
	if a.timer == nil {
		a.timer = time.AfterFunc(wait, func() {
			defer a.ringing.Done()
			a.ring()
		})
	} else if a.timer.Reset(wait) { // true: the earlier setting is cancelled and will not ring
		a.ringing.Done()
	}
}

// rang records that the alarm rang. It runs on the owner's goroutine.
func (a *alarm) rang() { a.armed = false }

// stop cancels the alarm permanently and waits for a ring in progress.
func (a *alarm) stop() {
	if a.timer != nil && a.timer.Stop() {
		a.ringing.Done()
	}
	a.ringing.Wait()
}
