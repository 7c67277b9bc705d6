package cpu

import (
	"sync"
	"sync/atomic"
)

// spins is how often a waiting goroutine polls before it parks. That takes some 20 µs: longer
// than the short phases between two products and far shorter than a step. So helpers stay
// awake within a step and sleep between steps.
const spins = 20000

// workers is a set of goroutines that share the units of one phase. Each worker has its own
// range of units. It is the same range in every phase of the same size, so the worker's cache
// still holds data of the phase before. A worker that has finished its range takes units of
// the others, so a phase does not wait for a worker whose thread the system has descheduled.
// Units write to disjoint memory and share no sum, so the assignment of units to workers
// affects no bit of the result.
type workers struct {
	run     func(worker, unit int)
	spins   int
	epoch   uint32 // number of the phase; only do uses it
	units   atomic.Int64
	done    atomic.Int64 // units of the phase that have ended
	cursors []cursor     // one per worker
	helpers []helper
	waiting atomic.Bool   // the caller of do is parked, or about to park
	ended   chan struct{} // wakes the caller of do
	closed  atomic.Bool
	all     sync.WaitGroup // helpers alive
}

// cursor is the state of a worker's range: the phase's epoch in the upper half and the next
// unit in the lower half. Units are claimed by compare-and-swap, so a helper that is delayed
// across phases can't take a unit of a phase that it has not seen.
type cursor struct {
	next atomic.Uint64
	_    [56]byte // one cursor per cache line of 64 bytes
}

// exhausted is a next unit beyond the end of every range.
const exhausted = 1<<32 - 1

// helper is the parking state of one helper goroutine. The helper sets parked before it waits on wake.
// Another goroutine that clears parked must send to wake, so no wake is lost and none is sent twice.
type helper struct {
	parked atomic.Bool
	wake   chan struct{}
	_      [48]byte
}

// newWorkers starts threads-1 helpers, which poll spins times before they park. The caller of
// do is worker 0.
func newWorkers(threads, spins int, run func(worker, unit int)) *workers {
	w := &workers{run: run, spins: spins, cursors: make([]cursor, threads), helpers: make([]helper, threads-1), ended: make(chan struct{}, 1)}
	for i := range w.helpers {
		w.helpers[i].wake = make(chan struct{}, 1)
		w.all.Add(1)
		go w.help(i)
	}
	return w
}

// do runs the units [0, n) and returns when all have ended. If alone is true, the caller runs
// them all: for phases that take less time than sharing them.
func (w *workers) do(n int, alone bool) {
	if alone || n < 2 || len(w.helpers) == 0 {
		for u := range n {
			w.run(0, u)
		}
		return
	}
	// First exhaust all cursors. Otherwise a helper still in the last phase would compute the
	// ends of old ranges from the new count of units and claim units that do not exist.
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

// await returns when n units have ended.
func (w *workers) await(n int64) {
	for range w.spins {
		if w.done.Load() == n {
			return
		}
	}
	// A wake may be stale: a helper that ended the last unit of an earlier phase may reach the
	// flag only now, clear it and send. So check the count again after each wake.
	for w.done.Load() != n {
		w.waiting.Store(true)
		if w.done.Load() != n || !w.waiting.CompareAndSwap(true, false) {
			<-w.ended // the helper that cleared the flag sends
		}
	}
}

// help is the loop of helper i, which is worker i+1. It drains each phase whose start it sees,
// polls between phases, and parks after spins polls without a new phase.
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
			<-h.wake // the goroutine that cleared the flag sends
		}
	}
}

// drain runs units until none is left to claim: first the worker's own, then the others'.
func (w *workers) drain(worker int) {
	threads := len(w.cursors)
	for i := range threads {
		from := (worker + i) % threads
		for {
			u, ok := w.claim(from)
			if !ok {
				break
			}
			n := w.units.Load() // the phase can't end, nor n change, before this unit has ended
			w.run(worker, u)
			if w.done.Add(1) == n && w.waiting.CompareAndSwap(true, false) {
				w.ended <- struct{}{}
			}
		}
	}
}

// claim takes the next unit of a worker's range; ok is false if the range is exhausted. It
// reads the count of units after the cursor: if the count belongs to a later phase, the cursor
// has changed in between and the swap fails.
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

// close ends the helpers; no phase may be running.
func (w *workers) close() {
	w.closed.Store(true)
	for i := range w.helpers {
		w.unpark(&w.helpers[i])
	}
	w.all.Wait()
}

// unpark wakes a helper if it is parked or about to park.
func (w *workers) unpark(h *helper) {
	if h.parked.CompareAndSwap(true, false) {
		h.wake <- struct{}{}
	}
}
