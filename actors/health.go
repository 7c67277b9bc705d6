package actors

import (
	"errors"
	"log/slog"
	"sync"
	"syscall"

	"github.com/coppice-llm/coppice/mempool"
)

// TierFailures counts the operations of a tier's store that failed, by reason. Operations that say
// nothing about the store (a miss, a parent that is missing, a cancellation) are not counted.
type TierFailures struct {
	Late     int64 // not ended by their deadline, including lookups of prompts, or refused while no call returns
	Busy     int64 // refused, because too many were open
	Full     int64 // writes that found no room
	Foreign  int64 // reads that found a record of another model, type, version or key
	Damaged  int64 // reads that found wrong bytes; their KV was computed again
	IOErrors int64 // errors of the operating system
	Failing  int   // 1 from the log line that says so to the one that says that the tier works again, else 0
}

// watchedStore counts the failures of a store. It logs one line when reads or writes of the store
// begin to fail, and one when both work again.
type watchedStore struct {
	mempool.Store
	log *slog.Logger

	mu            sync.Mutex
	failures      TierFailures
	reads, writes streak
	failed        int64 // failures since the tier began to fail
}

// streak is the recent past of one kind of operations.
type streak struct {
	failing bool
	late    int // late ones without a success in between
	good    int // successes since the latest failure
	need    int // successes in a row that end failing
}

// On a machine that stalls, a single operation may be late. A tier that fails now and then would fill
// the log, so the number of successes that end failing doubles each time, from leastGood to mostGood.
const (
	lateFails = 3
	leastGood = 8
	mostGood  = 1 << 12
)

// watchStore returns a store that watches s.
func watchStore(s mempool.Store, log *slog.Logger) *watchedStore {
	info := s.Info()
	log = log.With("tier", info.Tier.String())
	if info.Dir != "" {
		log = log.With("directory", info.Dir)
	}
	return &watchedStore{Store: s, log: log}
}

// Submit implements mempool.Store.
func (w *watchedStore) Submit(op mempool.Op) error {
	err := w.Store.Submit(op)
	if errors.Is(err, mempool.ErrBusy) {
		w.mu.Lock()
		defer w.mu.Unlock()
		if errors.Is(err, mempool.ErrStuck) {
			w.judge(&mempool.Done{Kind: op.Kind, Err: err})
		} else {
			w.failures.Busy++
		}
	}
	return err
}

// Poll implements mempool.Store.
func (w *watchedStore) Poll(dst []mempool.Done) []mempool.Done {
	n := len(dst)
	dst = w.Store.Poll(dst)
	if len(dst) > n {
		w.mu.Lock()
		defer w.mu.Unlock()
		for i := range dst[n:] {
			w.judge(&dst[n+i])
		}
	}
	return dst
}

// judge counts an ended operation. The lock is held.
func (w *watchedStore) judge(d *mempool.Done) {
	failing := w.failing()
	s, count := &w.writes, w.failures.of(d.Err)
	if d.Kind == mempool.Get || d.Kind == mempool.Probe {
		s = &w.reads
	}
	switch {
	case count != nil:
		*count++
		w.failed++
		s.fail(errors.Is(d.Err, mempool.ErrDeadline))
	case d.Kind == mempool.Probe && (d.Err == nil || errors.Is(d.Err, mempool.ErrMiss)), d.Err == nil && d.Bytes > 0:
		s.succeed()
	}
	switch now := w.failing(); {
	case now && !failing:
		w.failed = 1
		w.log.Warn("tier begins to fail", "operation", d.Kind.String(), "error", d.Err)
	case failing && !now:
		w.log.Info("tier works again", "failed", w.failed)
	}
}

// of returns the count for an error, or nil if the error says nothing about the store.
func (f *TierFailures) of(err error) *int64 {
	is := func(targets ...error) bool {
		for _, t := range targets {
			if errors.Is(err, t) {
				return true
			}
		}
		return false
	}
	switch {
	case err == nil, is(mempool.ErrMiss, mempool.ErrOrphan, mempool.ErrChildren, mempool.ErrCanceled, mempool.ErrClosed, mempool.ErrInvalid):
		return nil
	case is(mempool.ErrDeadline, mempool.ErrStuck):
		return &f.Late
	case is(mempool.ErrFull, syscall.ENOSPC, syscall.EDQUOT):
		return &f.Full
	case is(mempool.ErrForeign):
		return &f.Foreign
	case is(mempool.ErrCorrupt):
		return &f.Damaged
	}
	return &f.IOErrors
}

func (s *streak) fail(late bool) {
	s.good = 0
	if late {
		s.late++
	}
	s.failing = s.failing || !late || s.late >= lateFails
}

func (s *streak) succeed() {
	s.good++
	s.late = 0
	if s.need = max(s.need, leastGood); s.failing && s.good >= s.need {
		s.failing, s.need = false, min(2*s.need, mostGood)
	}
}

// counts returns the failures so far.
func (w *watchedStore) counts() TierFailures {
	w.mu.Lock()
	defer w.mu.Unlock()
	f := w.failures
	if w.failing() {
		f.Failing = 1
	}
	return f
}

// failing reports whether reads or writes fail. The lock is held.
func (w *watchedStore) failing() bool { return w.reads.failing || w.writes.failing }
