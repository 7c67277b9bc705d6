package cpu

import (
	"sync"
	"sync/atomic"
)

// workers are goroutines that share the units of one phase. Which worker takes
// which unit is left to chance: units write apart and sum nothing together, so
// it can't change a bit.
type workers struct {
	run  func(worker, unit int)
	wake []chan struct{} // one per helper
	next atomic.Int64
	n    int64
	busy sync.WaitGroup // helpers in the phase
	all  sync.WaitGroup // helpers alive
}

// newWorkers starts threads-1 helpers; the caller of do is worker 0.
func newWorkers(threads int, run func(worker, unit int)) *workers {
	w := &workers{run: run, wake: make([]chan struct{}, threads-1)}
	for i := range w.wake {
		w.wake[i] = make(chan struct{}, 1)
		w.all.Add(1)
		go func() {
			defer w.all.Done()
			for range w.wake[i] {
				w.drain(i + 1)
				w.busy.Done()
			}
		}()
	}
	return w
}

// do runs the units [0, n) and returns when all are done. With alone the caller
// does them itself, for phases shorter than waking a helper (some microseconds).
func (w *workers) do(n int, alone bool) {
	if alone || n < 2 || len(w.wake) == 0 {
		for u := range n {
			w.run(0, u)
		}
		return
	}
	w.n = int64(n)
	w.next.Store(0)
	helpers := min(len(w.wake), n-1)
	w.busy.Add(helpers)
	for _, c := range w.wake[:helpers] {
		c <- struct{}{}
	}
	w.drain(0)
	w.busy.Wait()
}

func (w *workers) drain(worker int) {
	for u := w.next.Add(1) - 1; u < w.n; u = w.next.Add(1) - 1 {
		w.run(worker, int(u))
	}
}

func (w *workers) close() {
	for _, c := range w.wake {
		close(c)
	}
	w.all.Wait()
}
