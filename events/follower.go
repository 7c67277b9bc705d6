package events

import (
	"context"
	"sync"
	"time"

	"github.com/zeebo/xxh3"

	"github.com/coppice-llm/coppice/events/wire"
	"github.com/coppice-llm/coppice/kv"
)

// follower keeps one rank of a sink current. All fields but those that end it and the status belong to
// its goroutine.
type follower struct {
	rank kv.Rank
	src  Source
	how  Follow
	cfg  SubscriberConfig
	sink Sink

	// The means to end it.
	ctx    context.Context
	cancel context.CancelFunc
	done   chan struct{} // closed when the goroutine has ended
	ended  sync.Once
	forget sync.Once

	mu     sync.Mutex // guards status, which other goroutines read
	status Status

	cursor Cursor
	dec    wire.Decoder
	tr     *translator
	state  State
	err    error
	counts Counts
	echoes
	orphans

	// Signs of publishers other than the followed one.
	successor uint64 // from FrameSuccessor
	elsewhere bool   // the latest frame was a FrameElsewhere
	topic     string // from FrameElsewhere

	// What is known of batches that did not arrive.
	accept     bool   // the publisher has no history, or had none yet: accept any first batch
	noSnapshot bool   // since it connected, the publisher has answered a request for a snapshot with ErrUnsupported
	missing    uint64 // highest number of a batch that arrived after a gap which is not recovered yet

	// Recognition of the publisher after a broken connection.
	last    uint64 // hash of the last applied batch
	doubted bool   // the connection is new, and no batch has shown yet whether the publisher is the same
	another bool   // a number, an epoch or a replay has shown that the publisher is not the one of the contents

	// Times from which due actions count; the zero time means none.
	wait     time.Duration // the last wait before a retry
	retryAt  time.Time
	brokenAt time.Time // when the connection broke
	heardAt  time.Time
	endsAt   time.Time // when outdated contents are cleared
}

// staleRun is the number of consecutive old numbers that show that a new publisher counts from
// the start. Late duplicates rarely come with consecutive numbers.
const staleRun = 4

// echoes tell late batches from those of a publisher that has restarted, if the transport has no
// epochs.
type echoes struct {
	stale     int    // how many consecutive old numbers have arrived
	staleNext uint64 // the old number that would be the next one
}

// isRestart reports whether old number seq shows that the publisher has restarted: it is 0, or
// the fourth of consecutive old numbers.
func (e *echoes) isRestart(seq uint64) bool {
	if seq != e.staleNext {
		e.stale = 0
	}
	e.stale++
	e.staleNext = seq + 1
	if seq == 0 || e.stale >= staleRun {
		e.stale = 0
		return true
	}
	return false
}

// orphans decides when blocks below unknown parents cause a rebuild. Such blocks show a loss
// that the numbers do not.
type orphans struct {
	orphanNext uint64 // no rebuild is requested before this many batches were applied
	orphanWait uint64 // number of batches between the last request and the next possible one
	rebuildDue bool   // rebuild as soon as no recovery is under way
}

// noteOrphans notes that a batch contained orphans. batches is the number of batches applied so
// far. It requests a rebuild, and the next one no sooner than 64 batches later, then 128, 256
// and so on: a publisher that always sends orphans must not cause a snapshot per batch.
func (o *orphans) noteOrphans(batches uint64) {
	if batches >= o.orphanNext {
		o.orphanWait = min(max(2*o.orphanWait, 64), 1<<20)
		o.orphanNext = batches + o.orphanWait
		o.rebuildDue = true
	}
}

// newFollower returns a follower of rank r, whose events come from src and go to sink; how has
// the options of Add. The caller starts run on a goroutine.
func newFollower(r kv.Rank, src Source, how Follow, cfg SubscriberConfig, sink Sink) *follower {
	f := &follower{rank: r, src: src, how: how, cfg: cfg, sink: sink, done: make(chan struct{}),
		dec: wire.Decoder{Limits: cfg.Limits}, tr: newTranslator(cfg.BlockTokens, cfg.SaltedBlocks)}
	if how.Silence != 0 {
		f.cfg.Silence = how.Silence
	}
	f.ctx, f.cancel = context.WithCancel(context.Background())
	return f
}

// stop ends the goroutine and the source, and waits for both.
func (f *follower) stop() {
	f.ended.Do(func() {
		f.cancel()
		<-f.done
		_ = f.src.Close() // there is no remedy for an error here
	})
}

// run handles frames and the due actions until the source or the follower ends. A rebuild for
// orphans waits until the current frame is handled, because a frame may start a recovery itself.
func (f *follower) run() {
	defer close(f.done)
	frames := f.src.Start()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	f.heardAt = time.Now()
	for {
		select {
		case <-f.ctx.Done():
			return
		case frame, ok := <-frames:
			if !ok {
				return
			}
			now := time.Now()
			if f.isSignOfLife(&frame) {
				f.heardAt = now
			}
			f.tick(now) // the timer may be late
			f.take(&frame)
		case <-timer.C:
			f.tick(time.Now())
		}
		if f.rebuildDue && f.state == Live {
			f.rebuild()
		}
		f.rebuildDue = false
		f.share()
		timer.Reset(f.pause(time.Now()))
	}
}

// tick does what is due at now: stop trusting the rank at the end of Grace or of Silence, clear
// outdated contents, or start the next recovery.
func (f *follower) tick(now time.Time) {
	if due(f.brokenAt, f.cfg.Grace, now) {
		f.brokenAt = time.Time{}
		if f.state != Faulty {
			f.retryAt = time.Time{}
			f.distrust(nil)
		}
	}
	if f.cfg.Silence > 0 && f.state == Live && due(f.heardAt, f.cfg.Silence, now) {
		f.distrust(nil)
	}
	if due(f.endsAt, 0, now) {
		f.invalidate(Waiting, nil)
	}
	if due(f.retryAt, 0, now) {
		f.retryAt = time.Time{}
		if f.state == Lost {
			f.rebuild()
		} else if f.state == Outdated {
			f.catchUp()
		} else if next, live := f.cursor.Next(); live && f.missing >= next {
			f.fillGap()
		}
	}
}

// isSignOfLife reports whether a frame shows that the followed publisher is alive. Batches with
// an old number or of another topic do not: an earlier publisher may still send them.
func (f *follower) isSignOfLife(frame *Frame) bool {
	switch frame.Kind {
	case FrameConnected:
		return true
	case FrameBatch:
		verdict := f.cursor.Observe(frame.Epoch, frame.Seq)
		return f.hasTopic(frame) && verdict != Stale && verdict != Impossible
	default:
		return false
	}
}

// due reports whether the duration after has passed since a time. It is false if since is the
// zero time.
func due(since time.Time, after time.Duration, now time.Time) bool {
	return !since.IsZero() && !now.Before(since.Add(after))
}

// pause returns the time from now until tick has something to do, at most an hour.
func (f *follower) pause(now time.Time) time.Duration {
	pause := time.Hour
	until := func(since time.Time, after time.Duration) {
		if !since.IsZero() {
			pause = min(pause, max(0, since.Add(after).Sub(now)))
		}
	}
	until(f.brokenAt, f.cfg.Grace)
	until(f.retryAt, 0)
	until(f.endsAt, 0)
	if f.cfg.Silence > 0 && f.state == Live {
		until(f.heardAt, f.cfg.Silence)
	}
	return pause
}

// take handles a frame by its kind. A faulty rank ignores all frames: its configuration must
// change first.
func (f *follower) take(frame *Frame) {
	switch {
	case f.state == Faulty:
		f.counts.Dropped++
	case frame.Kind == FrameConnected:
		f.brokenAt, f.retryAt, f.noSnapshot = time.Time{}, time.Time{}, false
		f.elsewhere, f.topic = false, ""
		f.catchUp()
	case frame.Kind == FrameDisconnected:
		f.retryAt = time.Time{} // the next connection starts the next recovery
		if f.brokenAt = time.Now(); f.cfg.Grace < 0 {
			f.brokenAt = time.Time{}
			f.distrust(nil)
		}
	case frame.Kind == FrameMalformed:
		f.counts.Malformed++
	case frame.Kind == FrameElsewhere:
		f.counts.UnknownWorker++
		f.elsewhere, f.topic = true, frame.Topic
	case frame.Kind == FrameSuccessor:
		f.counts.UnknownWorker++
		f.successor = frame.Epoch
	case !f.hasTopic(frame):
		f.counts.UnknownWorker++
	default:
		f.elsewhere, f.topic = false, ""
		f.batch(&frame.Message)
	}
}

// hasTopic reports whether a frame has the wanted topic.
func (f *follower) hasTopic(frame *Frame) bool {
	return f.how.Topic == "" || frame.Topic == f.how.Topic
}

// batch handles a batch by the cursor's verdict. A contiguous batch is applied, an impossible
// one counted. In all other cases a recovery may be needed first, which brings the rank up to
// date. Then the batch is judged again: it is the next one, or it was part of the recovery, or
// its number was false.
func (f *follower) batch(m *Message) {
	verdict := f.cursor.Observe(m.Epoch, m.Seq)
	if verdict == Impossible {
		f.counts.Impossible++
		return
	}
	if f.state == Lost { // the next recovery will include it
		f.counts.Dropped++
		return
	}
	if f.doubted && verdict != Contiguous {
		f.doubted = false
		f.rebuild()
		verdict = f.cursor.Observe(m.Epoch, m.Seq)
	}
	switch verdict {
	case Contiguous:
		if f.applyOrMend(m); f.state == Outdated { // nothing was missed
			f.recovered()
		}
		return
	case Stale:
		if !f.maybeRestarted(m) {
			f.counts.Stale++
			return
		}
		f.counts.Restarts++
		f.another = true
		f.rebuild()
		f.backOff()
	case Gap:
		f.counts.Gaps++
		f.missing = max(f.missing, m.Seq)
		if !f.retryAt.IsZero() {
			f.counts.Dropped++
			return
		}
		f.fillGap()
	case Restarted:
		if !f.retryAt.IsZero() {
			f.counts.Dropped++
			return
		}
		f.counts.Restarts++
		f.another = true
		f.rebuild()
		f.backOff()
	case Initial:
		if !f.accept || m.Seq > 0 { // earlier batches may have been missed
			f.rebuild()
		}
	}
	if f.state != Live {
		return
	}
	// After the recovery the batch is the due one, was part of it, or has a false number.
	switch f.cursor.Observe(m.Epoch, m.Seq) {
	case Initial:
		f.accept = false
		f.cursor.Set(m.Epoch, m.Seq)
		f.applyOrMend(m)
	case Contiguous:
		f.applyOrMend(m)
	case Stale:
	default:
		f.counts.Impossible++
	}
}

// maybeRestarted reports whether stale batch m may be of a publisher that has restarted without
// an epoch to show it. With epochs it is false.
func (f *follower) maybeRestarted(m *Message) bool {
	return m.Epoch == 0 && f.cursor.Epoch() == 0 && f.retryAt.IsZero() && f.isRestart(m.Seq)
}

// applyOrMend applies m, the next batch. If m can't be read, it may have been damaged on its
// way, so it is requested again. If the replayed batch can't be read either, the rank is
// rebuilt.
func (f *follower) applyOrMend(m *Message) {
	if f.apply(m) {
		return
	}
	f.missing = max(f.missing, m.Seq)
	f.fillGap()
	if next, live := f.cursor.Next(); f.state == Live && live && next <= m.Seq {
		f.rebuild()
	}
}

// apply applies a batch to the sink and moves the cursor after it. If the batch can't be read,
// it does nothing and returns false.
func (f *follower) apply(m *Message) bool {
	b, err := f.dec.Decode(m.Payload)
	if err != nil {
		f.counts.Malformed++
		return false
	}
	f.cursor.Took(m.Epoch, m.Seq)
	f.last, f.doubted = xxh3.Hash(m.Payload), false
	if f.isOtherRank(b) {
		f.counts.UnknownWorker++
		return true
	}
	f.counts.Batches++
	f.counts.UnknownEvents += uint64(b.Unknown)
	before := f.counts.OrphanBlocks
	for i := range b.Events {
		if err := f.event(&b.Events[i]); err != nil {
			f.invalidate(Faulty, err)
			return true
		}
	}
	if f.counts.OrphanBlocks > before && !f.noSnapshot && f.state == Live {
		f.noteOrphans(f.counts.Batches)
	}
	return true
}

// isOtherRank reports whether a batch is of another data-parallel rank.
func (f *follower) isOtherRank(b *wire.Batch) bool {
	return b.HasRank && b.Rank != f.rank.DP && !f.how.AnyRank
}

// event applies one event to the sink. An error means that the rank can't be indexed.
func (f *follower) event(e *wire.Event) error {
	f.counts.Events++
	why := notSkipped
	switch e.Kind {
	case wire.BlockStored:
		s, pass, err := f.tr.stored(e)
		if err != nil {
			return err
		}
		if why = pass; why == notSkipped && len(s.Blocks) > 0 {
			if f.sink.Store(f.rank, s) != nil { // never for Named
				f.counts.OrphanBlocks += uint64(len(s.Blocks))
			} else {
				f.counts.StoredBlocks += uint64(len(s.Blocks))
			}
		}
	case wire.BlockRemoved:
		var tier kv.Tier
		var hashes []kv.BlockHash
		if tier, hashes, why = f.tr.removed(e); why == notSkipped && len(hashes) > 0 {
			f.sink.Remove(f.rank, tier, hashes)
			f.counts.RemovedBlocks += uint64(len(hashes))
		}
	case wire.AllBlocksCleared:
		f.tr.reset()
		f.sink.Clear(f.rank)
	}
	f.countSkip(why)
	return nil
}

// countSkip counts an event that was skipped for the reason why. notSkipped counts nothing.
func (f *follower) countSkip(why skipReason) {
	switch why {
	case unknownMedium:
		f.counts.UnknownMedium++
	case otherGroup:
		f.counts.OtherGroup++
	case saltLimit:
		f.counts.RefusedSalted++
	}
}

// enter sets the state and the error, and calls OnChange if the state is another one than
// before.
func (f *follower) enter(s State, err error) {
	changed := f.state != s
	f.state, f.err = s, err
	if changed {
		f.share()
		if f.cfg.OnChange != nil {
			f.cfg.OnChange(f.rank, s, err)
		}
	}
}

// share publishes the status for other goroutines.
func (f *follower) share() {
	next, _ := f.cursor.Next()
	f.mu.Lock()
	f.status = Status{State: f.state, Err: f.err, Epoch: f.cursor.Epoch(), Next: next, Doubted: f.doubted, Successor: f.successor, Elsewhere: f.elsewhere, Topic: f.topic, Counts: f.counts}
	f.mu.Unlock()
}
