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

// What ends a replay early.
var (
	errIncomplete = errors.New("events: the replay begins too late")
	errRestarted  = errors.New("events: the publisher has begun anew")
	errRefused    = errors.New("events: the worker can't be indexed")
	errUnreadable = errors.New("events: a batch can't be read")
)

// forsake clears the rank and enters a state in which nothing of it is believed.
func (f *follower) forsake(s State, err error) {
	f.tr.reset()
	f.sink.Clear(f.rank)
	f.cursor.Reset()
	f.counts.Clears++
	f.doubted = false
	f.accept, f.missing, f.orphanNext, f.orphanWait = false, 0, 0, 0
	f.enter(s, err)
}

// lose is the end of a recovery that failed, of which there will be another.
func (f *follower) lose(err error) {
	f.counts.FailedRecoveries++
	f.forsake(Lost, err)
	f.backOff()
}

// backOff puts the next recovery off, twice as long as the last time.
func (f *follower) backOff() {
	f.wait = min(max(2*f.wait, f.cfg.RetryMin), f.cfg.RetryMax)
	f.retryAt = time.Now().Add(f.wait)
}

// live is the end of a recovery that mended something.
func (f *follower) live() {
	f.wait = 0
	f.missing = 0
	f.heardAt = time.Now() // it has answered, which may have taken longer than a silence may
	f.enter(Live, nil)
}

// catchUp follows a new connection: by a replay where that is provably of the
// same publisher, so that a broken connection costs no dump and no more than what was
// missed; else all anew. A publisher that keeps no history is believed to be the same
// until its next batch, which has the number that is due or is another's.
func (f *follower) catchUp() {
	next, live := f.cursor.Next()
	if !live || next == 0 || f.state != Live {
		f.rebuild()
		return
	}
	f.counts.Recoveries++
	err := f.resume(next)
	switch {
	case f.state == Faulty || f.ctx.Err() != nil:
	case err == nil:
		f.counts.Replays++
		f.live()
	case errors.Is(err, ErrUnsupported):
		f.doubted = true
		f.rebuild()
	default:
		f.rebuild()
	}
}

// resume replays what was missed. The publisher is the same one if it says so by its epoch,
// or if the batch before is what came of it then: batches have the time in them.
func (f *follower) resume(next uint64) error {
	epoch, last := f.cursor.Epoch(), f.last
	same := false
	told, err := f.replay(next-1, func(m Message) error {
		switch {
		case m.Epoch != 0 && epoch != 0 && m.Epoch != epoch:
			return errRestarted
		case m.Seq == next-1:
			if same = xxh3.Hash(m.Payload) == last; !same {
				return errRestarted
			}
			return nil
		case !same && (m.Epoch == 0 || m.Epoch != epoch):
			return errIncomplete
		}
		return f.next(m)
	})
	if err == nil && !same && (told == 0 || told != epoch) {
		err = errIncomplete
	}
	return err
}

// mend fills a gap: by a replay, else by all anew. The sink stays as it was
// before the gap until it is known what comes after it.
func (f *follower) mend() {
	f.counts.Recoveries++
	next, _ := f.cursor.Next()
	told, err := f.replay(next, f.next)
	switch {
	case f.state == Faulty: // by what was replayed
	case err == nil && (told == 0 || f.cursor.Epoch() == 0 || told == f.cursor.Epoch()):
		f.counts.Replays++
		if next, _ := f.cursor.Next(); next > f.missing {
			f.live()
			return
		}
		// Nothing was missing, the number was made up; or the publisher keeps nothing, which
		// only one without snapshots may.
		f.missing = 0
		if f.noSnapshot {
			f.rebuild()
		}
		if f.state == Live {
			f.backOff()
		}
	default:
		f.rebuild()
	}
}

// next applies a replayed batch, which must be the one that is due.
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
	case Stale: // it went round twice
		return nil
	case Restarted:
		return errRestarted
	default:
		return errIncomplete
	}
}

func (f *follower) replay(from uint64, each func(Message) error) (uint64, error) {
	ctx, cancel := context.WithTimeout(f.ctx, f.cfg.RecoverTimeout)
	defer cancel()
	return f.src.Replay(ctx, from, each)
}

// rebuild forgets what is known for what can be known: a snapshot, else what is
// still to be replayed, else what comes from now on.
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
		f.live()
	case errors.As(err, &size):
		f.forsake(Faulty, err)
	case errors.Is(err, ErrUnsupported):
		f.noSnapshot = true
		if f.doubted = doubted; !doubted {
			f.rebuildByReplay()
		}
	default:
		f.lose(fmt.Errorf("snapshot: %w", err))
	}
}

// rebuildByReplay starts from nothing at the oldest batch that the publisher
// kept. What was stored before that stays unknown, and all that builds on it.
func (f *follower) rebuildByReplay() {
	f.forsake(f.state, f.err)
	_, err := f.replay(0, func(m Message) error {
		if _, live := f.cursor.Next(); !live {
			if f.cursor.Observe(m.Epoch, m.Seq) == Impossible {
				return errUnreadable
			}
			f.cursor.Set(m.Epoch, m.Seq)
		}
		err := f.next(m)
		if errors.Is(err, errUnreadable) {
			// Whatever it removed is not removed, so all before it is void.
			f.forsake(f.state, f.err)
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
		f.lose(fmt.Errorf("replay: %w", err))
		return
	}
	_, live := f.cursor.Next()
	f.accept = !live
	f.live()
}

// install replaces the rank by a snapshot, or fails and changes nothing in the
// sink.
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
		if f.stranger(b) {
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
			if f.pass(why); why == taken && len(s.Blocks) > 0 {
				s.Blocks = slices.Clone(s.Blocks)
				dump = append(dump, s)
			}
		}
	}
	f.counts.OrphanBlocks += uint64(f.sink.Replace(f.rank, dump))
	f.cursor.Set(snap.Epoch, snap.Next)
	f.last = 0 // the batch before is not known
	f.accept = false
	return nil
}
