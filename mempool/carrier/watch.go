package carrier

import (
	"sync"
	"time"
)

// watch merges the Ready channels of the device and the stores, and an alarm, into one channel.
type watch struct {
	ready chan struct{} // has a capacity of 1
	stop  chan struct{}
	wait  sync.WaitGroup
	alarm *time.Timer
}

// begin starts a goroutine for each source.
func (w *watch) begin(sources []<-chan struct{}) {
	w.ready, w.stop = make(chan struct{}, 1), make(chan struct{})
	for _, s := range sources {
		w.wait.Go(func() {
			for {
				select {
				case <-s:
					w.wake()
				case <-w.stop:
					return
				}
			}
		})
	}
}

// wake sends a value to Ready, unless one is waiting there.
func (w *watch) wake() {
	select {
	case w.ready <- struct{}{}:
	default: // one is waiting there
	}
}

// wakeAt makes the alarm call wake at a time; a zero time turns the alarm off.
func (w *watch) wakeAt(at time.Time) {
	if w.alarm != nil {
		w.alarm.Stop()
	}
	if at.IsZero() {
		return
	}
	if w.alarm == nil {
		w.alarm = time.AfterFunc(time.Until(at), w.wake)
		return
	}
	w.alarm.Reset(time.Until(at))
}

// end stops the goroutines and waits for them.
func (w *watch) end() {
	w.wakeAt(time.Time{})
	close(w.stop)
	w.wait.Wait()
}

// arm sets the alarm to the time when the first move or probe becomes overdue.
func (x *Carrier) arm() {
	var first time.Time
	for _, c := range x.moves { // a minimum, in any order
		if due := x.due(c); c.stage != copying && !due.IsZero() {
			if first.IsZero() || due.Before(first) {
				first = due
			}
		}
	}
	x.watch.wakeAt(first)
}
