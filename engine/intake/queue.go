package intake

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/coppice-llm/coppice/engine"
)

// Queue is the FIFO of a backend: batches and transfers in the order of submission. Its
// methods may be called from any goroutine.
type Queue struct {
	info         *engine.Info
	maxTransfers int

	mu        sync.Mutex
	closed    bool
	lost      error             // ended the device
	lastSeq   uint64            // of the batches that were accepted
	tables    engine.TableSizes // as of lastSeq
	batches   int               // pending
	transfers int               // pending
	sampled   []bool            // by slot: a batch accepted since its bind samples

	jobs  chan *Job
	abort atomic.Bool
}

// New makes the queue of a backend; info must be complete and not change. At most
// maxTransfers calls of Transfer may be pending.
func New(info *engine.Info, maxTransfers int) *Queue {
	return &Queue{
		info: info, maxTransfers: maxTransfers,
		sampled: make([]bool, info.MaxSlots), tables: engine.NewTableSizes(info.MaxSlots),
		jobs: make(chan *Job, info.MaxInflight+maxTransfers),
	}
}

// Jobs are what was accepted, in order. Each ends by Finish. Close closes the channel.
func (q *Queue) Jobs() <-chan *Job { return q.jobs }

// Aborted reports whether Close was called: what has not begun ends with engine.ErrClosed.
func (q *Queue) Aborted() bool { return q.abort.Load() }

// Abort is set by Close, for loops that look between layers.
func (q *Queue) Abort() *atomic.Bool { return &q.abort }

// Submit implements engine.Backend. The transfers in After precede the batch in
// the queue, so there is nothing to wait for.
func (q *Queue) Submit(batch *engine.Batch) (engine.Ticket, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := q.ended(); err != nil {
		return nil, err
	}
	if err := batch.Validate(q.info, q.lastSeq, &q.tables); err != nil {
		return nil, err
	}
	if err := q.checkDeferred(batch); err != nil {
		return nil, err
	}
	if q.batches == q.info.MaxInflight {
		return nil, engine.ErrBusy
	}
	for i := range batch.Binds {
		q.sampled[batch.Binds[i].Slot] = false
	}
	for i := range batch.Rows {
		if r := &batch.Rows[i]; r.Sample {
			q.sampled[r.Slot] = true
		}
	}
	q.lastSeq = batch.Seq
	q.tables.Take(batch)
	q.batches++
	j := &Job{Batch: batch, done: make(chan struct{})}
	q.jobs <- j // has room for all that is accepted
	return j, nil
}

// checkDeferred refuses rows whose slot can have no last token when they run.
func (q *Queue) checkDeferred(batch *engine.Batch) error {
	for i := range batch.Rows {
		r := &batch.Rows[i]
		if !r.Deferred {
			continue
		}
		bound := false
		for j := range batch.Binds {
			bound = bound || batch.Binds[j].Slot == r.Slot
		}
		if bound || !q.sampled[r.Slot] {
			return fmt.Errorf("row %d: %w: deferred, but slot %d has sampled nothing since its bind", i, engine.ErrInvalid, r.Slot)
		}
	}
	return nil
}

// Transfer implements engine.Backend: the copies take their turn among the
// batches. It fails with ErrBusy when maxTransfers calls are pending.
func (q *Queue) Transfer(ops []engine.TransferOp) (engine.Ticket, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := q.ended(); err != nil {
		return nil, err
	}
	if err := q.info.CheckTransfer(ops); err != nil {
		return nil, err
	}
	if q.transfers == q.maxTransfers {
		return nil, engine.ErrBusy
	}
	q.transfers++
	j := &Job{Ops: ops, done: make(chan struct{})}
	q.jobs <- j
	return j, nil
}

// ended reports why nothing can be submitted; q.mu is held.
func (q *Queue) ended() error {
	if q.closed {
		return engine.ErrClosed
	}
	return q.lost
}

// Finish ends a job with a result or an error. An error other than ErrClosed ends the
// device: every later call fails with it. The place in the queue is given back first,
// so that a caller that has seen the ticket can submit.
func (q *Queue) Finish(j *Job, res *engine.Result, err error) {
	q.mu.Lock()
	if err != nil && !errors.Is(err, engine.ErrClosed) && q.lost == nil {
		q.lost = err
	}
	if j.Batch != nil {
		q.batches--
	} else {
		q.transfers--
	}
	q.mu.Unlock()
	j.complete(res, err)
}

// Close refuses what comes from now on and closes Jobs. It reports whether this was the
// first call.
func (q *Queue) Close() (first bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return false
	}
	q.closed = true
	q.abort.Store(true)
	close(q.jobs)
	return true
}

// Job is one entry of the queue, a batch or transfers, and its ticket.
type Job struct {
	Batch *engine.Batch
	Ops   []engine.TransferOp

	done chan struct{}
	res  *engine.Result // res and err are written before done is closed
	err  error
}

func (j *Job) complete(res *engine.Result, err error) {
	if res == nil == (err == nil) {
		panic(errors.New("intake: a ticket ends with a result or an error"))
	}
	j.res, j.err = res, err
	close(j.done)
}

// Done implements engine.Ticket.
func (j *Job) Done() <-chan struct{} { return j.done }

// Result implements engine.Ticket.
func (j *Job) Result() (*engine.Result, error) {
	select {
	case <-j.done:
		return j.res, j.err
	default:
		return nil, engine.ErrPending
	}
}
