package intake

import (
	"errors"
	"sync"
	"sync/atomic"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/kv"
)

// Queue is the FIFO queue of a backend: batches and moves in the order of submission. Its methods
// may be called from any goroutine.
type Queue struct {
	info     *engine.Info
	maxMoves int

	mu      sync.Mutex
	closed  bool
	lost    error            // the error that ended the device
	lastSeq uint64           // Seq of the last accepted batch
	before  engine.Submitted // state after batch lastSeq
	batches int              // pending batches
	moves   int              // pending moves
	moved   []engine.Moved   // for the next Moved

	jobs  chan *Job
	ready chan struct{} // has a capacity of 1
	abort atomic.Bool
}

// New returns the queue of a backend. info must be complete and must not change. At most maxMoves
// moves may be pending.
func New(info *engine.Info, maxMoves int) *Queue {
	return &Queue{
		info: info, maxMoves: maxMoves, ready: make(chan struct{}, 1),
		before: engine.NewSubmitted(info),
		jobs:   make(chan *Job, info.MaxInflight+maxMoves),
	}
}

// Jobs returns the channel of accepted jobs, in order. The backend must call Finish for each. Close
// closes the channel.
func (q *Queue) Jobs() <-chan *Job { return q.jobs }

// Aborted reports whether Close was called. Jobs that have not begun must then end with
// engine.ErrClosed.
func (q *Queue) Aborted() bool { return q.abort.Load() }

// Abort returns the flag behind Aborted, for loops that check it between layers.
func (q *Queue) Abort() *atomic.Bool { return &q.abort }

// Submit implements engine.Backend. It does not wait for the moves in batch.After: they are before
// the batch in the queue.
func (q *Queue) Submit(batch *engine.Batch) (engine.Ticket, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := q.ended(); err != nil {
		return nil, err
	}
	if err := batch.Validate(q.info, q.lastSeq, &q.before); err != nil {
		return nil, err
	}
	if q.batches == q.info.MaxInflight {
		return nil, engine.ErrBusy
	}
	q.lastSeq = batch.Seq
	q.before.Take(batch)
	q.batches++
	j := &Job{Batch: batch, done: make(chan struct{})}
	q.jobs <- j // never blocks: the capacity is MaxInflight+maxMoves
	return j, nil
}

// Move implements engine.Mover. The queue runs moves and batches in the order in which they came.
// Move fails with ErrBusy while maxMoves moves are pending.
func (q *Queue) Move(m *engine.Move, memory [][]byte) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := q.ended(); err != nil {
		return err
	}
	if err := q.info.CheckMove(m, memory); err != nil {
		return err
	}
	if q.moves == q.maxMoves {
		return engine.ErrBusy
	}
	q.moves++
	q.jobs <- &Job{Move: m, Memory: memory}
	return nil
}

// Moved implements engine.Mover.
func (q *Queue) Moved(dst []engine.Moved) []engine.Moved {
	q.mu.Lock()
	defer q.mu.Unlock()
	dst = append(dst, q.moved...)
	q.moved = q.moved[:0]
	return dst
}

// Ready implements engine.Mover.
func (q *Queue) Ready() <-chan struct{} { return q.ready }

// ended returns ErrClosed after Close, else the error that ended the device, or nil if there is
// none. The caller holds q.mu.
func (q *Queue) ended() error {
	if q.closed {
		return engine.ErrClosed
	}
	return q.lost
}

// Finish ends job j. For a batch, exactly one of res and err must be set; for a move res is
// unused. An err other than ErrClosed ends the device: every later call fails with it. Finish
// frees the job's place in the queue before it completes the ticket, so that a caller that has
// seen the ticket complete can submit.
func (q *Queue) Finish(j *Job, res *engine.Result, err error) {
	q.mu.Lock()
	if err != nil && !errors.Is(err, engine.ErrClosed) && q.lost == nil {
		q.lost = err
	}
	if j.Move != nil {
		q.moves--
		q.moved = append(q.moved, engine.Moved{ID: j.Move.ID, Err: err})
	} else {
		q.batches--
	}
	q.mu.Unlock()
	if j.Batch != nil {
		j.complete(res, err)
		return
	}
	select {
	case q.ready <- struct{}{}:
	default: // an earlier value is still there and covers this move, too
	}
}

// Close makes later calls fail with ErrClosed, sets the flag that Aborted reports, and closes the
// channel Jobs. It reports whether this was the first call.
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

// Job is one entry of the queue: a batch and its ticket, or a move.
type Job struct {
	Batch  *engine.Batch
	Move   *engine.Move
	Memory [][]byte // host memory of Move, one slice for each page

	done chan struct{}
	res  *engine.Result // res and err are written before done is closed
	err  error
}

// complete ends a batch's ticket. Exactly one of res and err must be non-nil.
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

// PoolPages returns the number of pages of a backend's pool: pages, or if that is 0 as many as hold
// the given number of tokens.
func PoolPages(pages, tokens, pageTokens int) int {
	if pages == 0 && tokens > 0 && pageTokens > 0 {
		return kv.CeilPages(tokens, pageTokens)
	}
	return pages
}
