package cpu

import (
	"sync"
	"sync/atomic"
)

// spins is how often a goroutine that waits looks again before it parks: some 20
// µs, longer than the short phases between two products and far shorter than a
// step, so that helpers stay awake within a step and sleep between steps.
const spins = 20000

// workers are goroutines that share the units of one phase. Each has a range of
// its own, the same at each phase of that size, so that a worker finds in its
// cache what it used before; one who is through helps the others with theirs, so
// that a phase does not wait for a worker that the machine has put aside. Units
// write apart and sum nothing together: who runs one can't change a bit.
type workers struct {
	run     func(worker, unit int)
	spins   int
	epoch   uint32 // of the phase, the caller's
	units   atomic.Int64
	done    atomic.Int64 // units of the phase that have ended
	cursors []cursor     // one per worker
	helpers []helper
	waiting atomic.Bool   // the caller parks until the last unit has ended
	ended   chan struct{} // wakes the caller
	closed  atomic.Bool
	all     sync.WaitGroup // helpers alive
}

// cursor is a worker's range: the phase's epoch in the upper half and the next
// unit in the lower. A claim is a compare-and-swap, so a helper that comes late
// can't take a unit of a phase that it has not seen.
type cursor struct {
	next atomic.Uint64
	_    [56]byte // apart from the others' cache lines
}

// exhausted is a next unit that no phase has.
const exhausted = 1<<32 - 1

type helper struct {
	parked atomic.Bool
	wake   chan struct{}
	_      [48]byte
}

// newWorkers starts threads-1 helpers, who look so many times before they park;
// the caller of do is worker 0.
func newWorkers(threads, spins int, run func(worker, unit int)) *workers {
	w := &workers{run: run, spins: spins, cursors: make([]cursor, threads), helpers: make([]helper, threads-1), ended: make(chan struct{}, 1)}
	for i := range w.helpers {
		w.helpers[i].wake = make(chan struct{}, 1)
		w.all.Add(1)
		go w.help(i)
	}
	return w
}

// do runs the units [0, n) and returns when all are done. With alone the caller
// does them itself, for phases shorter than sharing them.
func (w *workers) do(n int, alone bool) {
	if alone || n < 2 || len(w.helpers) == 0 {
		for u := range n {
			w.run(0, u)
		}
		return
	}
	// First no cursor offers anything: with the new count of units the end of an
	// old range would lie further on.
	for i := range w.cursors {
		w.cursors[i].next.Store(uint64(w.epoch)<<32 | exhausted)
	}
	w.epoch++
	w.done.Store(0)
	w.units.Store(int64(n))
	for i := len(w.cursors) - 1; i >= 0; i-- {
		w.cursors[i].next.Store(uint64(w.epoch)<<32 | uint64(i*n/len(w.cursors)))
	}
	for i := range w.helpers {
		w.unpark(&w.helpers[i])
	}
	w.drain(0)
	w.await(int64(n))
}

// drain runs units until none is left to claim, its own first.
func (w *workers) drain(worker int) {
	threads := len(w.cursors)
	for i := range threads {
		from := (worker + i) % threads
		for {
			u, ok := w.claim(from)
			if !ok {
				break
			}
			n := w.units.Load() // the phase's, which can't end before this unit has
			w.run(worker, u)
			if w.done.Add(1) == n && w.waiting.CompareAndSwap(true, false) {
				w.ended <- struct{}{}
			}
		}
	}
}

// claim takes the next unit of a worker's range. The count of units is read after
// the cursor: if it is of a later phase, the cursor has changed by now, and the
// swap fails.
func (w *workers) claim(from int) (unit int, ok bool) {
	c := &w.cursors[from].next
	for {
		seen := c.Load()
		next, end := int64(seen&exhausted), w.units.Load()*int64(from+1)/int64(len(w.cursors))
		if next >= end {
			return 0, false
		}
		if c.CompareAndSwap(seen, seen+1) {
			return int(next), true
		}
	}
}

// await returns when n units have ended.
func (w *workers) await(n int64) {
	for range w.spins {
		if w.done.Load() == n {
			return
		}
	}
	// A helper that ended the phase before, but is only now at the flag, may take
	// it and send: so look again after each wake.
	for w.done.Load() != n {
		w.waiting.Store(true)
		if w.done.Load() != n || !w.waiting.CompareAndSwap(true, false) {
			<-w.ended // who took the flag sends
		}
	}
}

// help is helper i: it drains each phase that it sees begin.
func (w *workers) help(i int) {
	defer w.all.Done()
	h, last, idle := &w.helpers[i], uint64(0), 0
	for {
		if seen := w.cursors[i+1].next.Load() >> 32; seen != last {
			last, idle = seen, 0
			w.drain(i + 1)
			continue
		}
		if w.closed.Load() {
			return
		}
		if idle++; idle < w.spins {
			continue
		}
		idle = 0
		h.parked.Store(true)
		if w.cursors[i+1].next.Load()>>32 == last && !w.closed.Load() || !h.parked.CompareAndSwap(true, false) {
			<-h.wake // who took the flag sends
		}
	}
}

func (w *workers) unpark(h *helper) {
	if h.parked.CompareAndSwap(true, false) {
		h.wake <- struct{}{}
	}
}

// close ends the helpers; no phase may be running.
func (w *workers) close() {
	w.closed.Store(true)
	for i := range w.helpers {
		w.unpark(&w.helpers[i])
	}
	w.all.Wait()
}
