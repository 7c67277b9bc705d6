package events

import (
	"context"
	"sync"
	"time"

	"github.com/zeebo/xxh3"

	"github.com/coppice-llm/coppice/events/wire"
	"github.com/coppice-llm/coppice/kv"
)

// follower keeps one rank of a sink up to date. All but life and shared is its goroutine's.
type follower struct {
	rank kv.Rank
	src  Source
	how  Follow
	cfg  SubscriberConfig
	sink Sink

	life
	shared

	cursor Cursor
	dec    wire.Decoder
	tr     *translator
	state  State
	err    error
	counts Counts

	others
	gap
	echoes
	orphans
	identity
	clock
}

// life is what ends a follower.
type life struct {
	ctx    context.Context
	cancel context.CancelFunc
	done   chan struct{} // closed when the goroutine has ended
	ended  sync.Once
	forget sync.Once
}

// shared is what other goroutines read.
type shared struct {
	mu     sync.Mutex
	status Status
}

// others is what was seen that is not of the publisher that is followed.
type others struct {
	successor uint64 // told by FrameSuccessor
	elsewhere bool   // a FrameElsewhere has come, and nothing after it
	topic     string // that it told
}

// gap is what is known of batches that did not come.
type gap struct {
	accept     bool   // the publisher has no history, or had none yet: the next batch is the first
	noSnapshot bool   // since it connected, it has answered ErrUnsupported
	missing    uint64 // highest sequence number seen beyond the cursor, and not mended
}

// identity is by what a publisher is known again after its connection broke.
type identity struct {
	last    uint64 // hash of the last batch that was applied
	doubted bool   // the connection broke, and nothing has come since
}

// staleRun is how many old numbers in a row are no echo, but a publisher anew.
const staleRun = 4

// echoes tell late batches from a publisher that began anew, unseen.
type echoes struct {
	stale     int    // old numbers in a row
	staleNext uint64 // that would make it one more
}

// isNew reports whether an old number is a new publisher's: its first, or one of a run.
func (e *echoes) isNew(seq uint64) bool {
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

// orphans decide when blocks below nothing are a reason to begin anew: something is amiss that the numbers don't show.
type orphans struct {
	orphanNext uint64 // no recovery before so many batches were applied
	orphanWait uint64
	amiss      bool // to be rebuilt as soon as no recovery is under way
}

// found notes orphans in a batch. It asks for a recovery at most every 64 batches, then half as often each time.
func (o *orphans) found(batches uint64) {
	if batches >= o.orphanNext {
		o.orphanWait = min(max(2*o.orphanWait, 64), 1<<20)
		o.orphanNext = batches + o.orphanWait
		o.amiss = true
	}
}

// clock has the times at which something is due; zero is never.
type clock struct {
	wait     time.Duration // of the last retry
	retryAt  time.Time
	brokenAt time.Time // when the connection broke
	heardAt  time.Time
}

func newFollower(r kv.Rank, src Source, how Follow, cfg SubscriberConfig, sink Sink) *follower {
	f := &follower{rank: r, src: src, how: how, cfg: cfg, sink: sink, life: life{done: make(chan struct{})},
		dec: wire.Decoder{Limits: cfg.Limits}, tr: newTranslator(cfg.BlockTokens, cfg.SaltedBlocks)}
	if how.Silence != 0 {
		f.cfg.Silence = how.Silence
	}
	f.ctx, f.cancel = context.WithCancel(context.Background())
	return f
}

// stop ends the goroutine and the source.
func (f *follower) stop() {
	f.ended.Do(func() {
		f.cancel()
		<-f.done
		_ = f.src.Close() // nobody could do anything about it
	})
}

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
			if f.speaks(&frame) {
				f.heardAt = now
			}
			f.tick(now) // the timer may be late
			f.take(&frame)
		case <-timer.C:
			f.tick(time.Now())
		}
		if f.amiss && f.state == Live {
			f.rebuild()
		}
		f.amiss = false
		f.share()
		timer.Reset(f.pause(time.Now()))
	}
}

// tick does what is due.
func (f *follower) tick(now time.Time) {
	if due(f.brokenAt, f.cfg.Grace, now) {
		f.brokenAt = time.Time{}
		if f.state != Faulty {
			f.retryAt = time.Time{}
			f.forsake(Waiting, nil)
		}
	}
	if f.cfg.Silence > 0 && f.state == Live && due(f.heardAt, f.cfg.Silence, now) {
		f.forsake(Waiting, nil)
	}
	if due(f.retryAt, 0, now) {
		f.retryAt = time.Time{}
		if f.state == Lost {
			f.rebuild()
		} else if next, live := f.cursor.Next(); live && f.missing >= next {
			f.mend()
		}
	}
}

// speaks reports whether a frame is a sign of life of the publisher that is believed. What
// is old, or another's, is none: it may be what an earlier one still says.
func (f *follower) speaks(frame *Frame) bool {
	switch frame.Kind {
	case FrameConnected:
		return true
	case FrameBatch:
		verdict := f.cursor.Observe(frame.Epoch, frame.Seq)
		return f.ours(frame) && verdict != Stale && verdict != Impossible
	default:
		return false
	}
}

func (f *follower) ours(frame *Frame) bool { return f.how.Topic == "" || frame.Topic == f.how.Topic }

func due(since time.Time, after time.Duration, now time.Time) bool {
	return !since.IsZero() && !now.Before(since.Add(after))
}

// pause is how long nothing is due.
func (f *follower) pause(now time.Time) time.Duration {
	pause := time.Hour
	until := func(since time.Time, after time.Duration) {
		if !since.IsZero() {
			pause = min(pause, max(0, since.Add(after).Sub(now)))
		}
	}
	until(f.brokenAt, f.cfg.Grace)
	until(f.retryAt, 0)
	if f.cfg.Silence > 0 && f.state == Live {
		until(f.heardAt, f.cfg.Silence)
	}
	return pause
}

func (f *follower) take(frame *Frame) {
	switch {
	case f.state == Faulty:
		f.counts.Dropped++
	case frame.Kind == FrameConnected:
		f.brokenAt, f.retryAt, f.noSnapshot = time.Time{}, time.Time{}, false
		f.elsewhere, f.topic = false, ""
		f.catchUp()
	case frame.Kind == FrameDisconnected:
		f.retryAt = time.Time{} // the next connection is the next try
		if f.brokenAt = time.Now(); f.cfg.Grace < 0 {
			f.brokenAt = time.Time{}
			f.forsake(Waiting, nil)
		}
	case frame.Kind == FrameMalformed:
		f.counts.Malformed++
	case frame.Kind == FrameElsewhere:
		f.counts.UnknownWorker++
		f.elsewhere, f.topic = true, frame.Topic
	case frame.Kind == FrameSuccessor:
		f.counts.UnknownWorker++
		f.successor = frame.Epoch
	case !f.ours(frame):
		f.counts.UnknownWorker++
	default:
		f.elsewhere, f.topic = false, ""
		f.batch(&frame.Message)
	}
}

func (f *follower) batch(m *Message) {
	verdict := f.cursor.Observe(m.Epoch, m.Seq)
	if verdict == Impossible {
		f.counts.Impossible++
		return
	}
	if f.state == Lost { // its time will come
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
		f.applyOrMend(m)
		return
	case Stale:
		if !f.maybeRestarted(m) {
			f.counts.Stale++
			return
		}
		f.counts.Restarts++
		f.rebuild()
		f.backOff()
	case Gap:
		f.counts.Gaps++
		f.missing = max(f.missing, m.Seq)
		if !f.retryAt.IsZero() {
			f.counts.Dropped++
			return
		}
		f.mend()
	case Restarted:
		if !f.retryAt.IsZero() {
			f.counts.Dropped++
			return
		}
		f.counts.Restarts++
		f.rebuild()
		f.backOff()
	case Initial:
		if !f.accept || m.Seq > 0 { // since it was asked it may have sent what was not heard
			f.rebuild()
		}
	}
	if f.state != Live {
		return
	}
	// Now that all is known that was sent before this was seen, it is the next, or
	// was among it, or was never sent.
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

// maybeRestarted reports whether a stale message may be of a publisher that began
// anew, unseen, where epochs are not told.
func (f *follower) maybeRestarted(m *Message) bool {
	return m.Epoch == 0 && f.cursor.Epoch() == 0 && f.retryAt.IsZero() && f.isNew(m.Seq)
}

// applyOrMend takes a batch that is due. If it can't be read, it may have been
// hurt on its way: it is asked for again; if it comes no better, all is.
func (f *follower) applyOrMend(m *Message) {
	if f.apply(m) {
		return
	}
	f.missing = max(f.missing, m.Seq)
	f.mend()
	if next, live := f.cursor.Next(); f.state == Live && live && next <= m.Seq {
		f.rebuild()
	}
}

// apply brings a batch into the sink and the cursor behind it; false if it can't
// be read.
func (f *follower) apply(m *Message) bool {
	b, err := f.dec.Decode(m.Payload)
	if err != nil {
		f.counts.Malformed++
		return false
	}
	f.cursor.Took(m.Epoch, m.Seq)
	f.last, f.doubted = xxh3.Hash(m.Payload), false
	if f.stranger(b) {
		f.counts.UnknownWorker++
		return true
	}
	f.counts.Batches++
	f.counts.UnknownEvents += uint64(b.Unknown)
	before := f.counts.OrphanBlocks
	for i := range b.Events {
		if err := f.event(&b.Events[i]); err != nil {
			f.forsake(Faulty, err)
			return true
		}
	}
	if f.counts.OrphanBlocks > before && !f.noSnapshot && f.state == Live {
		f.found(f.counts.Batches)
	}
	return true
}

// stranger reports whether a batch is of another rank.
func (f *follower) stranger(b *wire.Batch) bool {
	return b.HasRank && b.Rank != f.rank.DP && !f.how.AnyRank
}

func (f *follower) event(e *wire.Event) error {
	f.counts.Events++
	why := taken
	switch e.Kind {
	case wire.BlockStored:
		s, pass, err := f.tr.stored(e)
		if err != nil {
			return err
		}
		if why = pass; why == taken && len(s.Blocks) > 0 {
			if f.sink.Store(f.rank, s) != nil {
				f.counts.OrphanBlocks += uint64(len(s.Blocks))
			} else {
				f.counts.StoredBlocks += uint64(len(s.Blocks))
			}
		}
	case wire.BlockRemoved:
		var tier kv.Tier
		var hashes []kv.BlockHash
		if tier, hashes, why = f.tr.removed(e); why == taken && len(hashes) > 0 {
			f.sink.Remove(f.rank, tier, hashes)
			f.counts.RemovedBlocks += uint64(len(hashes))
		}
	case wire.AllBlocksCleared:
		f.tr.reset()
		f.sink.Clear(f.rank)
	}
	f.pass(why)
	return nil
}

func (f *follower) pass(why passed) {
	switch why {
	case unknownMedium:
		f.counts.UnknownMedium++
	case otherGroup:
		f.counts.OtherGroup++
	case tooManySalt:
		f.counts.RefusedSalted++
	}
}

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

func (f *follower) share() {
	next, _ := f.cursor.Next()
	f.mu.Lock()
	f.status = Status{State: f.state, Err: f.err, Epoch: f.cursor.Epoch(), Next: next, Doubted: f.doubted, Successor: f.successor, Elsewhere: f.elsewhere, Topic: f.topic, Counts: f.counts}
	f.mu.Unlock()
}
