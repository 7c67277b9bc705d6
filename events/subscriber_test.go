package events

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coppice-llm/coppice/events/wire"
	"github.com/coppice-llm/coppice/kv"
)

// pipe is a Source whose frames, replays and snapshots come from the test.
type pipe struct {
	frames   chan Frame
	replay   func(from uint64) (epoch uint64, messages []Message, err error)
	snapshot func() (Snapshot, error)
	asked    atomic.Int64 // replays and snapshots
	closed   atomic.Bool
}

func newPipe() *pipe {
	return &pipe{frames: make(chan Frame),
		replay:   func(uint64) (uint64, []Message, error) { return 0, nil, ErrUnsupported },
		snapshot: func() (Snapshot, error) { return Snapshot{}, ErrUnsupported }}
}

func (p *pipe) Start() <-chan Frame { return p.frames }

func (p *pipe) Replay(ctx context.Context, from uint64, each func(Message) error) (uint64, error) {
	p.asked.Add(1)
	epoch, messages, err := p.replay(from)
	for _, m := range messages {
		if err := each(m); err != nil {
			return 0, err
		}
	}
	return epoch, err
}

func (p *pipe) Snapshot(context.Context) (Snapshot, error) {
	p.asked.Add(1)
	return p.snapshot()
}

func (p *pipe) Close() error {
	p.closed.Store(true)
	return nil
}

func (p *pipe) send(m Message) { p.frames <- Frame{Message: m} }

// settle waits until all frames sent before are handled.
func (p *pipe) settle() {
	p.frames <- Frame{Kind: FrameMalformed}
	p.frames <- Frame{Kind: FrameMalformed}
}

var rank1 = kv.Rank{Worker: 1}

func mustSubscriber(t *testing.T, cfg SubscriberConfig, sink Sink, src Source) *Subscriber {
	t.Helper()
	return add(t, cfg, sink, src, Follow{})
}

func add(t *testing.T, cfg SubscriberConfig, sink Sink, src Source, how Follow) *Subscriber {
	t.Helper()
	cfg.BlockTokens = testBlock
	s, err := NewSubscriber(cfg, sink)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	if err := s.Add(rank1, src, how); err != nil {
		t.Fatal(err)
	}
	return s
}

func status(t *testing.T, s *Subscriber) Status {
	t.Helper()
	got, ok := s.Status(rank1)
	if !ok {
		t.Fatal("the rank is not followed")
	}
	return got
}

// TestFalseNumbers: a false number is not believed permanently, even where no replay can
// disprove it.
func TestFalseNumbers(t *testing.T) {
	p, sink := newPipe(), newNaive()
	sub := mustSubscriber(t, SubscriberConfig{}, sink, p)
	p.frames <- Frame{Kind: FrameConnected}
	for _, seq := range []uint64{10, 11, 1 << 30, 12, 13, 12, 13, 14} {
		p.send(Message{Seq: seq, Payload: payload(root(seq))})
	}
	p.settle()
	if st := status(t, sub); st.Next != 1<<30+1 || len(sink.held(rank1)) != 1 {
		t.Fatalf("%+v", st)
	}
	p.send(Message{Seq: 15, Payload: payload(root(15))})
	p.send(Message{Seq: 16, Payload: payload(root(16))})
	p.settle()
	if st := status(t, sub); st.Next != 17 || len(sink.held(rank1)) != 2 || st.Counts.Restarts != 1 {
		t.Errorf("%+v", st)
	}
}

func payload(events ...wire.Event) []byte {
	return wire.AppendBatch(nil, &wire.Batch{Events: events}, wire.Form{})
}

func root(numbers ...uint64) wire.Event {
	e := wire.Event{Kind: wire.BlockStored, BlockTokens: testBlock, Hashes: numbers}
	for _, n := range numbers {
		e.Tokens = append(e.Tokens, make([]uint32, testBlock)...)
		e.Tokens[len(e.Tokens)-1] = uint32(n)
	}
	return e
}

func TestRecoveryFails(t *testing.T) {
	p, sink := newPipe(), newNaive()
	trouble := errors.New("no answer")
	changes := make(chan State, 100)
	var healthy atomic.Bool
	healthy.Store(true)
	p.snapshot = func() (Snapshot, error) {
		if !healthy.Load() {
			return Snapshot{}, trouble
		}
		return Snapshot{Epoch: 9, Next: 5, Batches: [][]byte{payload(root(1, 2))}}, nil
	}
	sub := mustSubscriber(t, SubscriberConfig{RetryMin: time.Microsecond, RetryMax: time.Microsecond,
		OnChange: func(_ kv.Rank, s State, _ error) { changes <- s }}, sink, p)
	p.frames <- Frame{Kind: FrameConnected}
	if s := <-changes; s != Live || len(sink.held(rank1)) != 2 {
		t.Fatalf("%v", s)
	}
	healthy.Store(false)
	p.send(Message{Seq: 7, Payload: payload()})
	if s := <-changes; s != Lost || len(sink.held(rank1)) != 0 {
		t.Fatalf("%v, %d blocks", s, len(sink.held(rank1)))
	}
	healthy.Store(true) // retried by itself
	if s := <-changes; s != Live || len(sink.held(rank1)) != 2 {
		t.Fatalf("%v, %d blocks", s, len(sink.held(rank1)))
	}
	if st := status(t, sub); st.Next != 5 || st.Epoch != 9 || st.Counts.FailedRecoveries == 0 || st.Err != nil {
		t.Errorf("%+v", st)
	}
}

// TestFlood: many numbers from the future cost a bounded number of recoveries.
func TestFlood(t *testing.T) {
	p, sink := newPipe(), newNaive()
	p.replay = func(uint64) (uint64, []Message, error) { return 0, nil, nil }
	p.snapshot = func() (Snapshot, error) { return Snapshot{Next: 5, Batches: [][]byte{payload(root(1))}}, nil }
	sub := mustSubscriber(t, SubscriberConfig{RetryMin: time.Hour, RetryMax: time.Hour}, sink, p)
	p.frames <- Frame{Kind: FrameConnected}
	for i := range uint64(1000) {
		p.send(Message{Seq: 1000 + i, Payload: payload()})
		p.send(Message{Seq: 0, Payload: payload()})
		p.send(Message{Seq: 1<<63 + i})
		p.send(Message{Seq: 1<<33 + i})
	}
	p.settle()
	if n := p.asked.Load(); n > 5 {
		t.Errorf("asked %d times", n)
	}
	p.send(Message{Seq: 5, Payload: payload(root(2))}) // it is believed as before
	p.settle()
	if c := sub.Counts(); len(sink.held(rank1)) != 2 || c.Impossible < 2000 {
		t.Errorf("%d blocks, %v", len(sink.held(rank1)), c)
	}
}

func TestUnbelievableSnapshots(t *testing.T) {
	removal := wire.Event{Kind: wire.BlockRemoved, Hashes: []uint64{1}}
	for name, snap := range map[string]Snapshot{
		"hostile":       {Next: 1, Batches: [][]byte{[]byte("hostile")}},
		"endless":       {Next: EndSeq},
		"a removal":     {Next: 1, Batches: [][]byte{payload(root(1), removal)}},
		"too large":     {Next: 1, Batches: [][]byte{payload(root(1, 2, 3)), payload(root(4, 5))}},
		"half readable": {Next: 1, Batches: [][]byte{payload(root(1)), payload(root(2))[:30]}},
	} {
		p, sink := newPipe(), newNaive()
		p.snapshot = func() (Snapshot, error) { return snap, nil }
		sub := mustSubscriber(t, SubscriberConfig{DumpBlocks: 4, RetryMin: time.Hour, RetryMax: time.Hour}, sink, p)
		p.frames <- Frame{Kind: FrameConnected}
		p.settle()
		if st := status(t, sub); st.State != Lost || st.Err == nil || len(sink.held(rank1)) > 0 {
			t.Errorf("%s: %v, %v", name, st.State, st.Err)
		}
	}
	p, sink := newPipe(), newNaive()
	p.snapshot = func() (Snapshot, error) {
		return Snapshot{Next: 1, Batches: [][]byte{payload(root(1, 2, 3)), payload(root(4))}}, nil
	}
	mustSubscriber(t, SubscriberConfig{DumpBlocks: 4}, sink, p)
	p.frames <- Frame{Kind: FrameConnected}
	p.settle()
	if len(sink.held(rank1)) != 4 {
		t.Error("a dump at the limit was refused")
	}
}

func TestBlockSizeMismatch(t *testing.T) {
	p, sink := newPipe(), newNaive()
	sub := mustSubscriber(t, SubscriberConfig{}, sink, p)
	p.frames <- Frame{Kind: FrameConnected}
	p.send(Message{Payload: payload(root(1))})
	e := wire.Event{Kind: wire.BlockStored, BlockTokens: 2, Hashes: []uint64{8}, Tokens: []uint32{1, 2}}
	p.send(Message{Seq: 1, Payload: payload(e)})
	p.send(Message{Seq: 2, Payload: payload(root(2))})
	p.settle()
	want := "events: the worker's blocks are of 2 tokens, no multiple of the index's 4: give both the same block size"
	if st := status(t, sub); st.State != Faulty || st.Err == nil || st.Err.Error() != want || len(sink.held(rank1)) != 0 || st.Counts.Dropped == 0 {
		t.Errorf("%+v", st)
	}
}

func TestGraceAndSilence(t *testing.T) {
	for name, cfg := range map[string]SubscriberConfig{
		"grace": {Grace: time.Microsecond}, "no grace": {Grace: -1}, "silence": {Silence: time.Millisecond}, "silence of the rank": {Silence: time.Hour},
	} {
		p, sink := newPipe(), newNaive()
		p.snapshot = func() (Snapshot, error) { return Snapshot{Next: 1, Batches: [][]byte{payload(root(1))}}, nil }
		changes := make(chan State, 100)
		cfg.OnChange = func(_ kv.Rank, s State, _ error) { changes <- s }
		silence := strings.HasPrefix(name, "silence")
		if cfg.Silence == time.Hour {
			add(t, cfg, sink, p, Follow{Silence: time.Millisecond})
		} else {
			mustSubscriber(t, cfg, sink, p)
		}
		p.frames <- Frame{Kind: FrameConnected}
		if s := <-changes; s != Live {
			t.Fatalf("%s: %v", name, s)
		}
		if !silence {
			p.frames <- Frame{Kind: FrameDisconnected}
		}
		if s := <-changes; s != Waiting || len(sink.held(rank1)) != 0 {
			t.Errorf("%s: %v, %d blocks", name, s, len(sink.held(rank1)))
		}
		if silence {
			p.send(Message{Seq: 1, Payload: payload()}) // it lives
		} else {
			p.frames <- Frame{Kind: FrameConnected}
		}
		if s := <-changes; s != Live {
			t.Errorf("%s: %v", name, s)
		}
	}
}

// TestSilenceAmongOthers: batches of an earlier process with the same name do not count as
// signs of life of the followed process. When that one is considered gone, the other one
// is followed.
func TestSilenceAmongOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, sink := newPipe(), newNaive()
		epoch := uint64(9)
		p.snapshot = func() (Snapshot, error) {
			return Snapshot{Epoch: epoch, Next: 5, Batches: [][]byte{payload(root(epoch))}}, nil
		}
		sub := mustSubscriber(t, SubscriberConfig{Silence: 10 * time.Second}, sink, p)
		p.frames <- Frame{Kind: FrameConnected}
		p.settle()
		epoch = 8
		is := func(what string, want State) {
			t.Helper()
			synctest.Wait()
			if st := status(t, sub); st.State != want || len(sink.held(rank1)) != map[State]int{Live: 1}[want] {
				t.Fatalf("%s: %v, %d blocks", what, st.State, len(sink.held(rank1)))
			}
		}
		for i := range uint64(9) {
			time.Sleep(time.Second)
			p.send(Message{Epoch: 8, Seq: 100 + i, Payload: payload()})
			p.send(Message{Epoch: 9, Seq: i % 5, Payload: payload()})
			p.frames <- Frame{Kind: FrameMalformed}
		}
		is("after nine seconds", Live)
		time.Sleep(2 * time.Second)
		is("after eleven seconds", Waiting)
		p.send(Message{Epoch: 8, Seq: 5, Payload: payload()})
		is("the earlier one speaks", Live)
		for i := range uint64(20) {
			time.Sleep(time.Second)
			p.send(Message{Epoch: 8, Seq: 6 + i, Payload: payload()})
		}
		is("it goes on", Live)
		sub.Close()
	})
}

// TestFaultyRests: a rank that can't be indexed waits for nothing, also if its
// connection broke before that was noticed. A wait without end would spin.
func TestFaultyRests(t *testing.T) {
	s, err := NewSubscriber(SubscriberConfig{BlockTokens: testBlock}, newNaive())
	if err != nil {
		t.Fatal(err)
	}
	f := newFollower(rank1, newPipe(), Follow{}, s.cfg, s.sink)
	defer f.cancel()
	now := time.Now()
	f.brokenAt = now
	f.invalidate(Faulty, errBlockSize{})
	now = now.Add(s.cfg.Grace)
	f.tick(now)
	if pause := f.pause(now); pause == 0 || f.state != Faulty {
		t.Errorf("%v, and pauses for %v", f.state, pause)
	}
}

func TestStrangers(t *testing.T) {
	p, sink := newPipe(), newNaive()
	sub, err := NewSubscriber(SubscriberConfig{BlockTokens: testBlock}, sink)
	if err != nil {
		t.Fatal(err)
	}
	if err := sub.Add(rank1, p, Follow{Topic: "kv@a@m"}); err != nil {
		t.Fatal(err)
	}
	other := newPipe()
	if err := sub.Add(rank1, other, Follow{}); !errors.Is(err, ErrKnown) || !other.closed.Load() {
		t.Errorf("%v", err)
	}
	p.frames <- Frame{Topic: "kv@a@m", Message: Message{Seq: 0, Payload: payload(root(1))}}
	p.frames <- Frame{Topic: "kv@b@m", Message: Message{Seq: 1, Payload: payload(root(2))}}
	rank7 := wire.AppendBatch(nil, &wire.Batch{Events: []wire.Event{root(3)}, Rank: 7, HasRank: true}, wire.Form{})
	p.frames <- Frame{Topic: "kv@a@m", Message: Message{Seq: 1, Payload: rank7}}
	p.settle()
	if c := sub.Counts(); c.UnknownWorker != 2 || c.Batches != 1 || len(sink.held(rank1)) != 1 {
		t.Errorf("%v", c)
	}
	// TestStrangers: only a source can see that its topic gets no messages, and for how
	// long.
	elsewhere := Frame{Kind: FrameElsewhere, Topic: "kv@c@m"}
	for _, step := range []struct {
		frame Frame
		want  string
	}{
		{elsewhere, "kv@c@m"}, {Frame{Topic: "kv@b@m", Message: Message{Seq: 2, Payload: payload()}}, "kv@c@m"},
		{Frame{Topic: "kv@a@m", Message: Message{Seq: 2, Payload: payload()}}, ""}, {elsewhere, "kv@c@m"}, {Frame{Kind: FrameConnected}, ""},
	} {
		p.frames <- step.frame
		p.settle()
		if st := status(t, sub); st.Topic != step.want || st.Elsewhere != (step.want != "") {
			t.Errorf("after %+v: %q, want %q", step.frame, st.Topic, step.want)
		}
	}
	if _, ok := sub.Status(kv.Rank{Worker: 2}); ok {
		t.Error("status of a stranger")
	}
	sub.Remove(kv.Rank{Worker: 2})
	sub.Remove(rank1)
	if !p.closed.Load() || sink.held(rank1) != nil {
		t.Error("it is not gone")
	}
	if err := sub.Add(rank1, newPipe(), Follow{}); err != nil {
		t.Fatal(err)
	}
	sub.Close()
	sub.Close()
	if err := sub.Add(rank1, newPipe(), Follow{}); !errors.Is(err, ErrClosed) {
		t.Errorf("%v", err)
	}
	if c := sub.Counts(); c.UnknownWorker != 5 {
		t.Errorf("of those who were removed: %v", c)
	}
	// Removed ranks are part of the sum.
	p, sink = newPipe(), newNaive()
	sub = mustSubscriber(t, SubscriberConfig{}, sink, p)
	p.send(Message{Payload: payload(root(1))})
	p.settle()
	sub.Close()
	if c := sub.Counts(); c.StoredBlocks != 1 {
		t.Errorf("behind Close: %v", c)
	}
}

// TestAnyRank: the only engine of a source may have any rank number.
func TestAnyRank(t *testing.T) {
	p, sink := newPipe(), newNaive()
	rank7 := func(e wire.Event) []byte {
		return wire.AppendBatch(nil, &wire.Batch{Events: []wire.Event{e}, Rank: 7, HasRank: true}, wire.Form{})
	}
	p.snapshot = func() (Snapshot, error) { return Snapshot{Next: 1, Batches: [][]byte{rank7(root(1))}}, nil }
	sub := add(t, SubscriberConfig{}, sink, p, Follow{AnyRank: true})
	p.frames <- Frame{Kind: FrameConnected}
	p.send(Message{Seq: 1, Payload: rank7(root(2))})
	p.settle()
	if c := sub.Counts(); c.UnknownWorker != 0 || len(sink.held(rank1)) != 2 {
		t.Errorf("%v, %d blocks", c, len(sink.held(rank1)))
	}
}

// TestOrphansAreMended: orphans without a gap cause a snapshot, but not one each time.
func TestOrphansAreMended(t *testing.T) {
	p, sink := newPipe(), newNaive()
	var next atomic.Uint64
	p.snapshot = func() (Snapshot, error) { return Snapshot{Next: next.Load(), Batches: [][]byte{payload(root(1))}}, nil }
	sub := mustSubscriber(t, SubscriberConfig{}, sink, p)
	p.frames <- Frame{Kind: FrameConnected}
	orphan := root(3)
	orphan.Parent, orphan.HasParent = 2, true
	for i := range uint64(300) {
		next.Store(1_000_001 + i)
		p.send(Message{Seq: 1_000_000 + i, Payload: payload(orphan)})
	}
	p.settle()
	c := sub.Counts()
	if c.OrphanBlocks < 290 || c.Snapshots < 2 || c.Snapshots > 5 {
		t.Errorf("%v", c)
	}
	// Another publisher begins at 0: the delay does not apply to it.
	next.Store(0)
	p.frames <- Frame{Kind: FrameConnected}
	p.settle()
	c = sub.Counts()
	for i := range uint64(300) {
		next.Store(i + 1)
		p.send(Message{Seq: i, Payload: payload(orphan)})
	}
	p.settle()
	if n := sub.Counts(); n.Snapshots == c.Snapshots || n.Snapshots > c.Snapshots+5 || n.OrphanBlocks < c.OrphanBlocks+290 {
		t.Errorf("of another publisher: %v", n)
	}
}

// TestReplayOfNothing: a publisher that keeps no batches answers an empty replay. Then the
// missing batches are given up, and its later ones are applied.
func TestReplayOfNothing(t *testing.T) {
	p, sink := newPipe(), newNaive()
	p.replay = func(uint64) (uint64, []Message, error) { return 0, nil, nil }
	sub := mustSubscriber(t, SubscriberConfig{}, sink, p)
	p.frames <- Frame{Kind: FrameConnected}
	for _, seq := range []uint64{3, 4, 8, 9} {
		p.send(Message{Seq: seq, Payload: payload(root(seq))})
	}
	p.settle()
	if st := status(t, sub); st.State != Live || st.Next != 10 || len(sink.held(rank1)) != 2 || st.Counts.Impossible > 0 {
		t.Errorf("%d blocks, %+v", len(sink.held(rank1)), st)
	}
}

// TestUnreadableBatch: a batch that can't be read even when replayed may have removed any
// block, so no earlier contents are believed.
func TestUnreadableBatch(t *testing.T) {
	p, sink := newPipe(), newNaive()
	p.replay = func(uint64) (uint64, []Message, error) {
		return 0, []Message{{Seq: 3, Payload: payload(root(1))}, {Seq: 4, Payload: []byte("hostile")}, {Seq: 5, Payload: payload(root(2))}}, nil
	}
	sub := mustSubscriber(t, SubscriberConfig{}, sink, p)
	p.frames <- Frame{Kind: FrameConnected}
	p.settle()
	held := sink.held(rank1)
	if _, ok := held[tierHash{hash: 2}]; !ok || len(held) != 1 || status(t, sub).Next != 6 {
		t.Errorf("%d blocks, %+v", len(held), status(t, sub))
	}
}

// TestReplayOfAnother: after a reconnect, a replay from an unidentified publisher is not
// applied on top of the contents of an earlier one.
func TestReplayOfAnother(t *testing.T) {
	for _, epoch := range []uint64{0, 8, 10} {
		p, sink := newPipe(), newNaive()
		p.snapshot = func() (Snapshot, error) { return Snapshot{Epoch: 9, Next: 5, Batches: [][]byte{payload(root(1))}}, nil }
		p.replay = func(uint64) (uint64, []Message, error) {
			return epoch, []Message{{Epoch: epoch, Seq: 5, Payload: payload(root(2))}}, nil
		}
		sub := mustSubscriber(t, SubscriberConfig{}, sink, p)
		p.frames <- Frame{Kind: FrameConnected}
		p.frames <- Frame{Kind: FrameDisconnected}
		p.frames <- Frame{Kind: FrameConnected}
		p.settle()
		if c := sub.Counts(); c.Batches != 0 || c.Snapshots != 2 || len(sink.held(rank1)) != 1 {
			t.Errorf("epoch %d: %v", epoch, c)
		}
	}
}
