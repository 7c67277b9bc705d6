package actors

import (
	"sync"
	"time"
)

// alarm rings once at a time that is set, later ones giving way to sooner ones:
// one timer, however many requests have a time limit. It belongs to the scheduler
// actor; ring runs on the timer's goroutine, for which stop waits.
type alarm struct {
	ring    func()
	timer   *time.Timer
	at      time.Duration // when it rings, on the clock of now
	armed   bool          // it has not rung since it was set
	ringing sync.WaitGroup
}

// wakeAt has it ring at at, unless it will ring before anyway: whoever is woken
// too early sets it again.
func (a *alarm) wakeAt(now, at time.Duration) {
	if a.armed && a.at <= at {
		return
	}
	a.at, a.armed = at, true
	wait := max(at-now, 0)
	a.ringing.Add(1) // before it can ring
	if a.timer == nil {
		a.timer = time.AfterFunc(wait, func() {
			defer a.ringing.Done()
			a.ring()
		})
	} else if a.timer.Reset(wait) { // the ring that was set before does not come
		a.ringing.Done()
	}
}

// rang notes that it did, on the owner's goroutine.
func (a *alarm) rang() { a.armed = false }

// stop ends it for good and waits until nothing of it runs.
func (a *alarm) stop() {
	if a.timer != nil && a.timer.Stop() {
		a.ringing.Done()
	}
	a.ringing.Wait()
}
