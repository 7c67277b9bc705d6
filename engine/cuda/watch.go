package cuda

import (
	"errors"
	"slices"
	"sync"
	"time"
)

// ErrStuck is wrapped by the error of a device that does not respond: for Config.StepTimeout, no
// queued batch or move has ended. Its resources can't be freed until the process ends.
var ErrStuck = errors.New("cuda: the device does not respond")

// watch ends the jobs of a device that does not respond. Its methods may be called from any
// goroutine.
type watch struct {
	timeout time.Duration
	expired func(jobs []*job) // ends the given jobs and all later ones
	ended   chan struct{}     // closed when expired has returned

	mu    sync.Mutex
	open  []*job    // taken and not released; nil once stuck
	since time.Time // time of the last release, or of the take that made open non-empty
	stuck bool
	timer *time.Timer

	reading sync.Mutex // held while a batch is read, and while jobs are ended
}

func newWatch(timeout time.Duration, expired func(jobs []*job)) *watch {
	w := &watch{timeout: timeout, expired: expired, ended: make(chan struct{})}
	w.timer = time.AfterFunc(timeout, w.fire)
	w.timer.Stop()
	return w
}

// take starts watching j. It returns false if the device has been given up.
func (w *watch) take(j *job) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stuck {
		return false
	}
	if w.open = append(w.open, j); len(w.open) == 1 {
		w.restart()
	}
	return true
}

// release stops watching j. It returns false if the watch has ended j already.
func (w *watch) release(j *job) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	i := slices.Index(w.open, j)
	if i < 0 {
		return false
	}
	if w.open = slices.Delete(w.open, i, i+1); len(w.open) == 0 {
		w.timer.Stop()
	} else {
		w.restart()
	}
	return true
}

// read begins to read what the caller of an open job has lent, and returns true; stopRead ends it.
// Until then the watch ends no job. If it has ended the open jobs already, what they lent is their
// callers' again, and read returns false. No driver is called between read and stopRead: the call
// could hang.
func (w *watch) read() bool {
	w.reading.Lock()
	if w.isStuck() {
		w.reading.Unlock()
		return false
	}
	return true
}

func (w *watch) stopRead() { w.reading.Unlock() }

// restart sets the timer. The caller holds w.mu.
func (w *watch) restart() {
	w.since = time.Now()
	w.timer.Reset(w.timeout)
}

// isStuck reports whether the device has been given up.
func (w *watch) isStuck() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.stuck
}

// fire ends the open jobs if the timeout has passed. It runs on the timer's goroutine, possibly
// late, after a restart; then it sets the timer again.
func (w *watch) fire() {
	w.mu.Lock()
	if left := w.timeout - time.Since(w.since); len(w.open) == 0 || left > 0 {
		if len(w.open) > 0 {
			w.timer.Reset(left)
		}
		w.mu.Unlock()
		return
	}
	jobs := w.open
	w.open, w.stuck = nil, true
	w.mu.Unlock()
	w.reading.Lock()
	w.expired(jobs)
	w.reading.Unlock()
	close(w.ended)
}
