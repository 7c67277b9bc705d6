package mocker

import (
	"fmt"
	"time"

	"github.com/coppice-llm/coppice/kv"
)

// Worker is a simulated worker. It belongs to one goroutine.
type Worker struct {
	cfg    Config
	limit  int // most active blocks after an admission
	cache  cache
	timing Polynomial
	tokens []kv.Token // scratch, one block

	waiting []*sequence // first to be admitted first
	running []*sequence // in order of admission
	spare   []*sequence // unused, for their memory

	now   time.Duration // latest time passed in
	busy  bool          // a pass is in progress, until the time in until
	until time.Duration

	logs      [2]log // events of the pass in progress, and events handed out by the last Pass
	current   int    // index in logs of the events of the pass in progress
	seq       uint64 // number of the next event
	cached    int    // cached prompt tokens of the requests admitted to the pass in progress
	preempted []int  // requests preempted when the pass in progress began
	stats     Stats
}

// New makes an idle worker. The error wraps ErrConfig.
func New(cfg Config) (*Worker, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.WithDefaults()
	return &Worker{cfg: cfg, limit: int((1 - watermark) * float64(cfg.Blocks)), cache: newCache(cfg.Blocks), timing: DefaultPolynomial()}, nil
}

// Submit appends request r to the queue. The caller must not change r until it has ended. An
// idle worker wakes at now, so requests submitted at the same time enter the same pass. An error
// changes nothing. Errors wrap ErrRequest, ErrTooLarge or ErrQueueFull, except the error for a
// now that is before an earlier one or after the time of Wake.
func (w *Worker) Submit(now time.Duration, r *Request) error {
	if now < w.now || w.busy && now > w.until {
		return fmt.Errorf("mocker: Submit at %v, but it is %v and the next pass is due at %v", now, w.now, w.until)
	}
	if err := r.check(&w.cfg); err != nil {
		return err
	}
	if len(w.waiting) >= w.cfg.MaxWaiting {
		return fmt.Errorf("%w: %d, as many as MaxWaiting", ErrQueueFull, len(w.waiting))
	}
	w.now = now
	s := w.newSequence()
	s.req, s.prompt, s.tokens = r, len(r.Tokens), len(r.Tokens)
	w.waiting = append(w.waiting, s)
	if !w.busy {
		w.busy, w.until = true, now
	}
	return nil
}

// Wake returns the end of the pass in progress; ok is false if the worker is idle.
func (w *Worker) Wake() (at time.Duration, ok bool) { return w.until, w.busy }

// Usage returns the load of the worker.
func (w *Worker) Usage() Usage {
	return Usage{UsedBlocks: w.cache.active, Waiting: len(w.waiting), Running: len(w.running)}
}

// Overlap returns the number of leading blocks that a prompt with these hashes would find now,
// including those that the pass in progress computes.
func (w *Worker) Overlap(hashes []kv.BlockHash) int {
	blocks, _ := w.cache.match(hashes)
	return blocks
}

// Stats returns a copy of the counts.
func (w *Worker) Stats() Stats {
	st := w.stats
	st.Evicted = w.cache.evicted
	return st
}

func (w *Worker) newSequence() *sequence {
	if n := len(w.spare) - 1; n >= 0 {
		s := w.spare[n]
		w.spare = w.spare[:n]
		return s
	}
	return &sequence{}
}

// recycle keeps a sequence for newSequence, with the memory of its slices.
func (w *Worker) recycle(s *sequence) {
	*s = sequence{slots: s.slots[:0], hashes: s.hashes[:0]}
	w.spare = append(w.spare, s)
}
