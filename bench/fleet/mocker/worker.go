package mocker

import (
	"fmt"
	"time"

	"github.com/coppice-llm/coppice/kv"
)

// Worker is the whole machine. It belongs to one goroutine.
type Worker struct {
	cfg   Config
	limit int // blocks that may be active after an admission
	cache cache
	namer namer

	waiting queue
	running []*sequence // in the order of admission
	spare   []*sequence

	now   time.Duration // latest time it was told
	busy  bool          // a pass is under way, until
	until time.Duration

	logs      [2]log // the one of the pass under way, and the one that was handed out
	current   int
	seq       uint64 // of the next event
	cached    int    // prompt tokens found, since the pass under way was begun
	preempted []int  // as the pass under way was begun
	stats     Stats
}

// New makes an idle worker. The error wraps ErrConfig.
func New(cfg Config) (*Worker, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.WithDefaults()
	return &Worker{cfg: cfg, limit: cfg.admitBlocks(), cache: newCache(cfg.Blocks), namer: namer{seed: cfg.Seed}}, nil
}

// Submit puts a request at the end of the line; it is not changed until it ended
// or was aborted. An idle worker wakes at once, at now: what comes at the same
// moment goes into the same pass. Errors, after which nothing has changed, wrap
// ErrRequest, ErrTooLarge or ErrQueueFull, but for a now that goes back or
// that is past Wake.
func (w *Worker) Submit(now time.Duration, r *Request) error {
	if now < w.now || w.busy && now > w.until {
		return fmt.Errorf("mocker: Submit at %v, but it is %v and the next pass is due at %v", now, w.now, w.until)
	}
	if err := r.check(&w.cfg); err != nil {
		return err
	}
	if w.waiting.len >= w.cfg.MaxWaiting {
		return fmt.Errorf("%w: %d, as many as MaxWaiting", ErrQueueFull, w.waiting.len)
	}
	w.now = now
	s := w.newSequence()
	s.req, s.prompt = r, r.promptTokens()
	s.tokens = s.prompt
	w.waiting.pushBack(s)
	if !w.busy {
		w.busy, w.until = true, now
	}
	return nil
}

// Wake is when the pass under way ends; not ok if there is nothing to do.
func (w *Worker) Wake() (at time.Duration, ok bool) { return w.until, w.busy }

// Abort ends a request now, without a report: its blocks are let go, and what has a
// name stays cached. False if no such request waits or runs. Cost: those that do.
func (w *Worker) Abort(id int) bool {
	for i, s := range w.running {
		if s.req.ID == id {
			w.cache.drop(s.slots)
			w.running = append(w.running[:i], w.running[i+1:]...)
			w.recycle(s)
			return true
		}
	}
	for i := range w.waiting.len {
		if s := w.waiting.at(i); s.req.ID == id {
			w.waiting.cut(i)
			w.recycle(s)
			return true
		}
	}
	return false
}

// Usage is how busy the worker is.
func (w *Worker) Usage() Usage {
	return Usage{UsedBlocks: w.cache.active, Waiting: w.waiting.len, Running: len(w.running)}
}

// Overlap is how many leading blocks a prompt would find now, those that the pass
// under way computes among them.
func (w *Worker) Overlap(hashes []kv.BlockHash) int {
	blocks, _ := w.cache.match(hashes)
	return blocks
}

// CachedBlocks is how many blocks can be found, those of running requests among
// them.
func (w *Worker) CachedBlocks() int { return w.cache.table.used }

// Stats is a copy of the counts.
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

// recycle keeps a sequence's memory for the next.
func (w *Worker) recycle(s *sequence) {
	*s = sequence{slots: s.slots[:0], hashes: s.hashes[:0]}
	w.spare = append(w.spare, s)
}
