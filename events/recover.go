package events

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/zeebo/xxh3"

	"github.com/coppice-llm/coppice/events/wire"
)

// Errors that end a replay early.
var (
	errIncomplete = errors.New("events: the replay begins too late")
	errRestarted  = errors.New("events: the publisher has restarted")
	errRefused    = errors.New("events: the worker can't be indexed")
	errUnreadable = errors.New("events: a batch can't be read")
)

// catchUp repairs the rank after a new connection. If a replay proves that the publisher is the
// same as before, the missed batches are enough, so a broken connection costs no snapshot.
// Otherwise the rank is rebuilt. A publisher without history counts as the same until its next
// batch (field doubted), which has either the next number or shows another publisher.
func (f *follower) catchUp() {
	next, live := f.cursor.Next()
	if !live || next == 0 || f.state != Live && f.state != Outdated {
		f.rebuild()
		return
	}
	f.counts.Recoveries++
	err := f.resume(next)
	switch {
	case f.state == Faulty || f.ctx.Err() != nil:
	case err == nil:
		f.counts.Replays++
		f.recovered()
	case errors.Is(err, ErrUnsupported):
		f.doubted = true
		f.rebuild()
	default:
		f.another = errors.Is(err, errRestarted)
		f.rebuild()
	}
}

// resume replays the missed batches; next is the number of the first of them. It fails unless
// the publisher is the same as before. That is so if its epoch is the same, or if the batch
// before next has the same hash as the last applied batch: batches contain their time, so two
// publishers do not send equal ones.
func (f *follower) resume(next uint64) error {
	epoch, last := f.cursor.Epoch(), f.last
	same := false
	answered, err := f.replay(next-1, func(m Message) error {
		switch {
		case m.Epoch != 0 && epoch != 0 && m.Epoch != epoch:
			return errRestarted
		case m.Seq == next-1:
			if same = m.Epoch != 0 && m.Epoch == epoch || xxh3.Hash(m.Payload) == last; !same {
				return errRestarted
			}
			return nil
		case !same && (m.Epoch == 0 || m.Epoch != epoch):
			return errIncomplete
		}
		return f.next(m)
	})
	if err == nil && !same && (answered == 0 || answered != epoch) {
		err = errIncomplete
	}
	return err
}

// fillGap replays the missing batches, or rebuilds the rank if that fails. Until then the sink
// keeps its contents: what the publisher held before the gap, or less, and never more.
func (f *follower) fillGap() {
	f.counts.Recoveries++
	next, _ := f.cursor.Next()
	answered, err := f.replay(next, f.next)
	switch {
	case f.state == Faulty: // by what was replayed
	case err == nil && (answered == 0 || f.cursor.Epoch() == 0 || answered == f.cursor.Epoch()):
		f.counts.Replays++
		if next, _ := f.cursor.Next(); next > f.missing {
			f.recovered()
			return
		}
		// The replay was empty. Either the number beyond the gap was false, or the publisher keeps no
		// batches, which is valid only for one without snapshots.
		f.missing = 0
		if f.noSnapshot {
			f.rebuild()
		}
		if f.state == Live {
			f.backOff()
		}
	default:
		f.another = err == nil || errors.Is(err, errRestarted) // without an error, the answer has another epoch
		f.rebuild()
	}
}

// rebuild replaces the rank's contents by a snapshot. If the publisher makes none, it uses the
// batches that can still be replayed, or else starts with the next batch. If a recovery fails,
// the rank is Lost.
func (f *follower) rebuild() {
	f.counts.Recoveries++
	doubted := f.doubted
	f.doubted = false
	ctx, cancel := context.WithTimeout(f.ctx, f.cfg.RecoverTimeout)
	defer cancel()
	snap, err := f.src.Snapshot(ctx)
	if err == nil {
		err = f.install(&snap)
	}
	var size errBlockSize
	switch {
	case f.ctx.Err() != nil: // closing
	case err == nil:
		f.counts.Snapshots++
		f.recovered()
	case errors.As(err, &size):
		f.invalidate(Faulty, err)
	case errors.Is(err, ErrUnsupported):
		f.noSnapshot = true
		if f.doubted = doubted; !doubted {
			f.rebuildByReplay()
		}
	default:
		f.failRecovery(fmt.Errorf("snapshot: %w", err))
	}
}

// rebuildByReplay clears the rank and replays all batches that the publisher keeps. Blocks
// stored before these stay unknown, and so do all blocks below them.
func (f *follower) rebuildByReplay() {
	f.invalidate(f.state, f.err)
	_, err := f.replay(0, func(m Message) error {
		if _, live := f.cursor.Next(); !live {
			if f.cursor.Observe(m.Epoch, m.Seq) == Impossible {
				return errUnreadable
			}
			f.cursor.Set(m.Epoch, m.Seq)
		}
		err := f.next(m)
		if errors.Is(err, errUnreadable) {
			// The removals in this batch are lost, so the contents from before it are invalid.
			f.invalidate(f.state, f.err)
			f.cursor.Set(m.Epoch, m.Seq+1)
			err = nil
		}
		return err
	})
	switch {
	case f.ctx.Err() != nil || f.state == Faulty:
		return
	case err == nil:
		f.counts.Replays++
	case !errors.Is(err, ErrUnsupported):
		f.failRecovery(fmt.Errorf("replay: %w", err))
		return
	}
	_, live := f.cursor.Next()
	f.accept = !live
	f.recovered()
}

// recovered handles a successful recovery: the rank is Live.
func (f *follower) recovered() {
	f.wait = 0
	f.missing = 0
	f.another, f.endsAt = false, time.Time{}
	f.heardAt = time.Now() // the answer may have taken longer than Silence
	f.enter(Live, nil)
}

// replay asks the source for the batches from number from on and calls each with them, within
// RecoverTimeout. It returns the publisher's epoch, or 0 if that is unknown.
func (f *follower) replay(from uint64, each func(Message) error) (uint64, error) {
	ctx, cancel := context.WithTimeout(f.ctx, f.cfg.RecoverTimeout)
	defer cancel()
	return f.src.Replay(ctx, from, each)
}

// next applies a replayed batch. An error ends the replay: the batch is not the next one, can't
// be read, or shows that the rank can't be indexed.
func (f *follower) next(m Message) error {
	switch f.cursor.Observe(m.Epoch, m.Seq) {
	case Contiguous:
		if !f.apply(&m) {
			return errUnreadable
		}
		if f.state == Faulty {
			return errRefused
		}
		return nil
	case Stale: // sent twice
		return nil
	case Restarted:
		return errRestarted
	default:
		return errIncomplete
	}
}

// failRecovery handles a recovery that failed with err: the rank is Lost, or Outdated if the
// publisher could not be asked. The next recovery is scheduled.
func (f *follower) failRecovery(err error) {
	f.counts.FailedRecoveries++
	if errors.Is(err, ErrUnreachable) && f.mayOutlast() {
		f.distrust(err)
	} else {
		f.invalidate(Lost, err)
	}
	f.backOff()
}

// distrust handles the end of Grace or of Silence, for the reason err: the contents are Outdated if
// Outlast allows to keep them, and cleared otherwise. Outdated contents keep the end of their first
// outage, because several may follow one another.
func (f *follower) distrust(err error) {
	if !f.mayOutlast() {
		f.invalidate(Waiting, err)
		return
	}
	if f.state == Live {
		f.endsAt = time.Now().Add(f.how.Outlast)
	}
	f.enter(Outdated, err)
}

// invalidate clears the rank in the sink and enters state s, for the reason err. The cursor
// becomes initial, so the next batch does not count as a continuation.
func (f *follower) invalidate(s State, err error) {
	f.tr.reset()
	f.sink.Clear(f.rank)
	f.cursor.Reset()
	f.counts.Clears++
	f.doubted, f.another, f.endsAt = false, false, time.Time{}
	f.accept, f.missing, f.orphanNext, f.orphanWait = false, 0, 0, 0
	f.enter(s, err)
}

// mayOutlast reports whether the contents may be kept though later batches do not arrive.
func (f *follower) mayOutlast() bool {
	_, applied := f.cursor.Next()
	return f.how.Outlast > 0 && applied && !f.another && (f.state == Live || f.state == Outdated)
}

// backOff schedules the next recovery after twice the last wait, at least RetryMin and at most
// RetryMax: 10, 20, 40 ms … 5 s by default.
func (f *follower) backOff() {
	f.wait = min(max(2*f.wait, f.cfg.RetryMin), f.cfg.RetryMax)
	f.retryAt = time.Now().Add(f.wait)
}

// install replaces the rank's contents in the sink by a snapshot, and sets the cursor after it.
// If the snapshot can't be used, it returns an error and leaves the sink unchanged.
func (f *follower) install(snap *Snapshot) error {
	if snap.Next >= 1<<63 {
		return fmt.Errorf("%w: it ends before batch %d", errUnreadable, snap.Next)
	}
	if snap.Epoch != 0 && snap.Epoch < f.cursor.Epoch() {
		return fmt.Errorf("%w: it is of an earlier publisher", errUnreadable)
	}
	f.tr.reset()
	var dump []Stored
	left := f.cfg.DumpBlocks
	for _, payload := range snap.Batches {
		b, err := f.dec.Decode(payload)
		if err != nil {
			f.counts.Malformed++
			return err
		}
		if f.isOtherRank(b) {
			f.counts.UnknownWorker++
			continue
		}
		for i := range b.Events {
			e := &b.Events[i]
			if e.Kind != wire.BlockStored {
				return fmt.Errorf("%w: %v in a snapshot", errUnreadable, e.Kind)
			}
			s, why, err := f.tr.stored(e)
			if err != nil {
				return err
			}
			if left -= len(s.Blocks); left < 0 {
				return fmt.Errorf("events: a snapshot of more than %d blocks: raise DumpBlocks", f.cfg.DumpBlocks)
			}
			if f.countSkip(why); why == notSkipped && len(s.Blocks) > 0 {
				s.Blocks = slices.Clone(s.Blocks)
				dump = append(dump, s)
			}
		}
	}
	f.counts.OrphanBlocks += uint64(f.sink.Replace(f.rank, dump))
	f.cursor.Set(snap.Epoch, snap.Next)
	f.last = 0 // the batch before is unknown
	f.accept = false
	return nil
}
