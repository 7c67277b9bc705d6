// Package ops runs the operations of a store. It owns a bounded queue, a fixed number of workers,
// deadlines and cancellation, and produces exactly one Done for each operation. It does not
// interpret extents and never touches an operation's pages.
//
//	q := ops.New(4, 64, func(worker int, j *ops.Job) mempool.Done { … })
//	err := q.Submit(op)
//	<-q.Ready()
//	done = q.Poll(done[:0])
package ops

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/coppice-llm/coppice/mempool"
)

// Queue queues and runs operations. It is safe for concurrent use.
type Queue struct {
	run     func(worker int, j *Job) mempool.Done
	most    int // bound of busy
	workers sync.WaitGroup

	mu      sync.Mutex
	work    sync.Cond // signals a waiting job, or the close of the queue
	waiting []*Job
	open    map[mempool.OpID]*Job // operations without a Done yet
	busy    int                   // jobs that wait or run, including those that were given up while running
	done    []mempool.Done        // for the next Poll
	closed  bool
	metrics mempool.StoreMetrics // counts of operations only
	begun   uint64               // jobs submitted so far

	ready chan struct{}
}

// Job is an operation in the queue or on a worker.
type Job struct {
	Op    mempool.Op
	Turn  uint64 // ascending in the order of Submit; jobs that write begin in that order
	q     *Queue
	timer *time.Timer
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
	committed // deadlines and cancels have no effect
	ended
)

// New returns a Queue with as many goroutines as workers says. Each calls run with one job at a time,
// and with its own number, counted from 0. most is the largest number of jobs that may wait or run at
// a time.
func New(workers, most int, run func(worker int, j *Job) mempool.Done) *Queue {
	q := &Queue{run: run, most: most, open: map[mempool.OpID]*Job{}, ready: make(chan struct{}, 1)}
	q.work.L = &q.mu
	q.workers.Add(workers)
	for w := range workers {
		go q.worker(w)
	}
	return q
}

// Ready returns a channel that gets a value after operations have ended.
func (q *Queue) Ready() <-chan struct{} { return q.ready }

// Submit queues op. It fails with mempool.ErrClosed after Close, with mempool.ErrBusy if as many jobs
// as New allows wait or run, and with mempool.ErrInvalid if op.ID is in use.
func (q *Queue) Submit(op mempool.Op) (*Job, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.closed:
		return nil, mempool.ErrClosed
	case q.busy >= q.most:
		return nil, mempool.ErrBusy
	case q.open[op.ID] != nil:
		return nil, fmt.Errorf("%w: number %d is in use", mempool.ErrInvalid, op.ID)
	}
	q.begun++
	j := &Job{Op: op, Turn: q.begun, q: q, after: make(chan struct{})}
	q.open[op.ID] = j
	q.busy++
	q.enter(j)
	if !op.Deadline.IsZero() {
		j.timer = time.AfterFunc(time.Until(op.Deadline), func() { q.giveUp(j, mempool.ErrDeadline) })
	}
	q.work.Signal()
	return j, nil
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

// Cancel ends an operation with ErrCanceled unless it has ended or committed.
func (q *Queue) Cancel(id mempool.OpID) {
	q.mu.Lock()
	j := q.open[id]
	q.mu.Unlock()
	if j != nil {
		q.giveUp(j, mempool.ErrCanceled)
	}
}

// giveUp ends a job with the error cause unless it has ended or committed. While a worker uses the
// job's pages, the job ends when that use is over.
func (q *Queue) giveUp(j *Job, cause error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch j.state {
	case ended, committed:
		return
	case holding:
		if j.cause == nil {
			j.cause = cause
		}
		return
	}
	q.end(j, mempool.Done{Err: cause})
}

// end ends a job with d. From then on the caller of Submit owns the pages again. The lock is held.
func (q *Queue) end(j *Job, d mempool.Done) {
	if j.state == waiting { // no worker has taken it
		q.waiting = slices.DeleteFunc(q.waiting, func(o *Job) bool { return o == j })
		q.busy--
		close(j.after)
	}
	j.state = ended
	if j.timer != nil {
		j.timer.Stop()
	}
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

// HasLeft reports whether Left is closed.
func (j *Job) HasLeft() bool {
	select {
	case <-j.after:
		return true
	default:
		return false
	}
}

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
		q.mu.Unlock()

		d := q.run(w, j)

		q.mu.Lock()
		q.busy--
		if j.state != ended {
			q.end(j, d)
		}
		q.mu.Unlock()
		close(j.after)
	}
}

// Poll returns dst with the results of operations that have ended since the last call appended.
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

// Close ends waiting operations with ErrClosed, waits for running ones, and reports whether this
// was the first call.
func (q *Queue) Close() bool {
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
