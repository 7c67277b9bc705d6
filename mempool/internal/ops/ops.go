// Package ops runs the operations of a store. It owns a bounded queue, a fixed number of workers,
// cancellation, the order of puts of one extent and of its parent, and produces exactly one Done for
// each operation. It never touches an operation's pages, and has no deadlines: the caller cancels.
//
//	q := ops.New(info, 4, func(worker int, j *ops.Job) mempool.Done { … })
//	err := q.Submit(op)
//	<-q.Ready()
//	done = q.Poll(done[:0])
package ops

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/coppice-llm/coppice/mempool"
)

// ErrEnded is the error of a job that was given up. The job's Done exists already, so ErrEnded is
// never reported.
var ErrEnded = errors.New("ops: the operation was given up")

// Queue queues and runs operations. It is safe for concurrent use. A store embeds it and so has most
// methods of mempool.Store.
type Queue struct {
	info    mempool.StoreInfo
	run     func(worker int, j *Job) mempool.Done
	workers sync.WaitGroup

	mu      sync.Mutex
	work    sync.Cond // signals a waiting job, or the close of the queue
	waiting []*Job
	open    map[mempool.OpID]*Job  // operations without a Done yet
	puts    map[mempool.Key][]*Job // by extent: Puts that wait or run, in the order of Submit
	busy    int                    // jobs that wait or run, including those that were given up while running; at most info.MaxOps
	done    []mempool.Done         // for the next Poll
	closed  bool
	since   []time.Time          // by worker: when it began its job; zero if it has none
	metrics mempool.StoreMetrics // counts of operations only
	begun   uint64               // jobs submitted so far
	limit   time.Duration        // stuckAfter; tests set less

	ready chan struct{}
}

// Job is an operation in the queue or on a worker.
type Job struct {
	Op    mempool.Op
	turn  uint64 // ascending in the order of Submit; jobs that write begin in that order
	q     *Queue
	begun time.Time
	after chan struct{} // closed when no worker will use the job again
	state jobState
	cause error // reason why the job was given up while it was holding
}

// jobState is the state of a job. A job is waiting, then running, holding during each call of Pages,
// committed after a successful Commit, and at last ended. A job that is given up ends without being
// committed.
type jobState uint8

const (
	waiting jobState = iota
	running
	holding   // a worker uses its pages
	committed // cancels have no effect
	ended
)

// New returns the queue of the store that info describes, with as many goroutines as workers says.
// Each calls run with one job at a time, and with its own number, counted from 0. At most info.MaxOps
// jobs wait or run at a time.
func New(info mempool.StoreInfo, workers int, run func(worker int, j *Job) mempool.Done) *Queue {
	q := &Queue{info: info, run: run, open: map[mempool.OpID]*Job{}, puts: map[mempool.Key][]*Job{}, ready: make(chan struct{}, 1),
		since: make([]time.Time, workers), limit: stuckAfter}
	q.work.L = &q.mu
	q.workers.Add(workers)
	for w := range workers {
		go q.worker(w)
	}
	return q
}

// Info implements mempool.Store.
func (q *Queue) Info() mempool.StoreInfo { return q.info }

// Ready implements mempool.Store.
func (q *Queue) Ready() <-chan struct{} { return q.ready }

// Submit implements mempool.Store.
func (q *Queue) Submit(op mempool.Op) error {
	if err := q.info.Identity.CheckOp(&op); err != nil {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.closed:
		return mempool.ErrClosed
	case q.stuck():
		return mempool.ErrStuck
	case q.busy >= q.info.MaxOps:
		return mempool.ErrBusy
	case q.open[op.ID] != nil:
		return fmt.Errorf("%w: number %d is in use", mempool.ErrInvalid, op.ID)
	}
	// A worker may still use an operation that was given up, and then the slices are the caller's.
	op.Extent, op.Then = op.Extent.Clone(), slices.Clone(op.Then)
	q.begun++
	j := &Job{Op: op, turn: q.begun, q: q, after: make(chan struct{})}
	q.open[op.ID] = j
	if op.Kind == mempool.Put {
		q.puts[op.Extent.Key] = append(q.puts[op.Extent.Key], j)
	}
	q.busy++
	q.enter(j)
	q.work.Signal()
	return nil
}

// PutBefore returns the latest Put of extent k that was submitted before j and that a worker may still
// use, or nil. It runs already if j does and writes, since jobs that write begin in the order of Submit.
func (q *Queue) PutBefore(k mempool.Key, j *Job) *Job {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, p := range slices.Backward(q.puts[k]) {
		if p.turn < j.turn {
			return p
		}
	}
	return nil
}

// enter puts a job into the queue. Reads go before all other jobs, because requests wait for them.
// The lock is held.
func (q *Queue) enter(j *Job) {
	at := len(q.waiting)
	if j.reads() {
		for at > 0 && !q.waiting[at-1].reads() {
			at--
		}
	}
	q.waiting = slices.Insert(q.waiting, at, j)
}

func (j *Job) reads() bool { return j.Op.Kind == mempool.Get || j.Op.Kind == mempool.Probe }

// Cancel implements mempool.Store. It ends an operation unless it has ended or committed. While a
// worker uses the operation's pages, the operation ends when that use is over.
func (q *Queue) Cancel(id mempool.OpID, cause error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	j := q.open[id]
	switch {
	case j == nil || j.state == committed:
	case j.state == holding:
		j.cause = cmp.Or(j.cause, cause)
	default:
		q.end(j, mempool.Done{Err: cause})
	}
}

// stuckAfter is how long all workers may be in one call each, until the store counts as stuck. It is
// far beyond the time in which a slow disk reads an extent.
const stuckAfter = 10 * time.Second

// stuck reports whether no call of the store returns: each worker has had its job for longer than
// limit. The lock is held.
func (q *Queue) stuck() bool {
	for _, t := range q.since {
		if t.IsZero() || time.Since(t) < q.limit {
			return false
		}
	}
	return true
}

// end ends a job with d. From then on the caller of Submit owns the pages again. The lock is held.
func (q *Queue) end(j *Job, d mempool.Done) {
	if j.state == waiting { // no worker has taken it
		q.waiting = slices.DeleteFunc(q.waiting, func(o *Job) bool { return o == j })
		q.leave(j)
	}
	j.state = ended
	d.ID, d.Kind, d.Key = j.Op.ID, j.Op.Kind, j.Op.Extent.Key
	if !j.begun.IsZero() {
		d.Took = time.Since(j.begun)
	}
	j.Op.Pages = nil
	delete(q.open, j.Op.ID)
	q.count(&d)
	q.done = append(q.done, d)
	select {
	case q.ready <- struct{}{}:
	default:
	}
}

// leave records that no worker will use j again. The lock is held.
func (q *Queue) leave(j *Job) {
	q.busy--
	if k := j.Op.Extent.Key; j.Op.Kind == mempool.Put {
		if q.puts[k] = slices.DeleteFunc(q.puts[k], func(o *Job) bool { return o == j }); len(q.puts[k]) == 0 {
			delete(q.puts, k)
		}
	}
	close(j.after)
}

// count adds an ended operation to the metrics. The lock is held.
func (q *Queue) count(d *mempool.Done) {
	m := q.metrics.Of(d.Kind)
	switch {
	case d.Err == nil:
		m.OK++
		m.Bytes += int64(d.Bytes)
		m.Time += d.Took
	case errors.Is(d.Err, mempool.ErrMiss):
		m.Missed++
	case errors.Is(d.Err, mempool.ErrDeadline):
		m.Late++
	case errors.Is(d.Err, mempool.ErrCanceled), errors.Is(d.Err, mempool.ErrClosed):
		m.Canceled++
	default:
		m.Failed++
	}
	if errors.Is(d.Err, mempool.ErrCorrupt) {
		q.metrics.Damaged++
	}
}

// Pages calls f with the job's pages and returns true; the job can't end before f returns. Pages
// returns false without calling f if the job has ended or committed. It also returns false if the
// job was given up while f ran.
func (j *Job) Pages(f func(pages [][]byte)) bool {
	q := j.q
	q.mu.Lock()
	if j.state != running {
		q.mu.Unlock()
		return false
	}
	j.state = holding
	pages := j.Op.Pages
	q.mu.Unlock()

	f(pages)

	q.mu.Lock()
	defer q.mu.Unlock()
	j.state = running
	if j.cause != nil {
		q.end(j, mempool.Done{Err: j.cause})
		return false
	}
	return true
}

// Commit reports whether the job may take effect. If it returns true, the job can no longer be given
// up and ends with the Done that run returns. It returns false if the job has been given up.
func (j *Job) Commit() bool {
	j.q.mu.Lock()
	defer j.q.mu.Unlock()
	if j.state == running {
		j.state = committed
	}
	return j.state == committed
}

// Left returns a channel that is closed when no worker will use the job again.
func (j *Job) Left() <-chan struct{} { return j.after }

// worker runs jobs in the order of the queue until it is closed.
func (q *Queue) worker(w int) {
	defer q.workers.Done()
	for {
		q.mu.Lock()
		for len(q.waiting) == 0 && !q.closed {
			q.work.Wait()
		}
		if len(q.waiting) == 0 {
			q.mu.Unlock()
			return
		}
		j := q.waiting[0]
		q.waiting = slices.Delete(q.waiting, 0, 1)
		j.state, j.begun = running, time.Now()
		q.since[w] = j.begun
		q.mu.Unlock()

		d := q.run(w, j)

		q.mu.Lock()
		if j.state != ended {
			q.end(j, d)
		}
		q.leave(j)
		q.since[w] = time.Time{}
		q.mu.Unlock()
	}
}

// Poll implements mempool.Store.
func (q *Queue) Poll(dst []mempool.Done) []mempool.Done {
	q.mu.Lock()
	defer q.mu.Unlock()
	dst = append(dst, q.done...)
	q.done = q.done[:0]
	return dst
}

// Metrics returns the counts of ended and of open operations.
func (q *Queue) Metrics() mempool.StoreMetrics {
	q.mu.Lock()
	defer q.mu.Unlock()
	m := q.metrics
	m.OpenOps = len(q.open)
	return m
}

// End ends waiting operations with ErrClosed, waits for running ones, and reports whether this was the
// first call.
func (q *Queue) End() bool {
	q.mu.Lock()
	first := !q.closed
	q.closed = true
	for len(q.waiting) > 0 {
		q.end(q.waiting[0], mempool.Done{Err: mempool.ErrClosed})
	}
	q.work.Broadcast()
	q.mu.Unlock()
	q.workers.Wait()
	return first
}
