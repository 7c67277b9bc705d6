package events

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coppice-llm/coppice/events/wire"
	"github.com/coppice-llm/coppice/kv"
)

func payloads(messages []Message) (p [][]byte) {
	for _, m := range messages {
		p = append(p, m.Payload)
	}
	return p
}

// Whatever a cache does, the wire says the same, in both forms; and a snapshot
// says it too, at any time.
func TestPublisherSaysWhatIs(t *testing.T) {
	for _, cfg := range []PublisherConfig{{}, {Form: wire.Form{Arrays: true}, BatchEvents: 1}, {BatchBlocks: 3}, {FlushEvery: 15 * time.Second, BatchEvents: 5}} {
		tap, tree := newTap(), newTree(7)
		p := mustPublisher(t, cfg, tap)
		for round := range 20 {
			p.Publish(tree.steps(1 + round*5))
			p.Publish(tree.steps(1)) // while the others are at work
			s := mustSnapshot(t, p)
			got := make(map[tierHash]kv.LocalHash)
			residency(t, got, s.Batches...)
			if d := differ(got, tree.held); d != "" {
				t.Fatalf("%+v: round %d: snapshot: %s", cfg, round, d)
			}
		}
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
		got := make(map[tierHash]kv.LocalHash)
		residency(t, got, payloads(tap.sent)...)
		if d := differ(got, tree.held); d != "" {
			t.Errorf("%+v: %s", cfg, d)
		}
		for i, m := range tap.sent {
			if m.Seq != uint64(i) || m.Epoch != p.Epoch() {
				t.Fatalf("message %d has number %d, epoch %d", i, m.Seq, m.Epoch)
			}
		}
		if m := p.Metrics(); m.NextSeq != uint64(len(tap.sent)) || m.HeldBlocks == 0 || m.Gaps+m.OrphanBlocks+m.DuplicateBlocks+m.UnknownRemoves > 0 || !tap.closed {
			t.Errorf("%v", m)
		}
		if _, err := p.Snapshot(context.Background()); !errors.Is(err, ErrClosed) {
			t.Errorf("snapshot after Close: %v", err)
		}
	}
}

// block makes a chain of blocks, each its own number of times four.
func chain(parent *kv.Block, numbers ...kv.Token) kv.Event {
	ev := kv.Event{Kind: kv.Stored}
	hasher := kv.NewHasher(kv.Namespace{}, testBlock)
	if parent != nil {
		ev.Parent, ev.HasParent = parent.Hash, true
		hasher.Resume(parent.Hash)
	}
	for _, n := range numbers {
		tokens := slices.Repeat([]kv.Token{n}, testBlock)
		hash, local := hasher.Next(tokens)
		ev.Blocks = append(ev.Blocks, kv.Block{Hash: hash, Local: local, Tokens: tokens})
	}
	return ev
}

func removed(blocks ...kv.Block) kv.Event {
	ev := kv.Event{Kind: kv.Removed}
	for _, b := range blocks {
		ev.Hashes = append(ev.Hashes, b.Hash)
	}
	return ev
}

// decoded is what a message holds, one event per line's worth.
func decoded(t *testing.T, m Message) *wire.Batch {
	t.Helper()
	var d wire.Decoder
	b, err := d.Decode(m.Payload)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestPublisherDeduplicatesAndMerges(t *testing.T) {
	tap := newTap()
	p := mustPublisher(t, PublisherConfig{}, tap)
	abc := chain(nil, 1, 2, 3)
	b := abc.Blocks
	more := chain(&b[2], 4)
	p.Publish([]kv.Event{abc, more, abc, chain(&b[0], 2, 9), removed(more.Blocks[0]), removed(b[2], b[2]), removed(kv.Block{Hash: 77}), chain(&b[2], 5)})
	m := tap.wait(0, 1)[0]
	p.Close()
	got := decoded(t, m)
	if len(got.Events) != 3 {
		t.Fatalf("%d events", len(got.Events))
	}
	run, other, gone := got.Events[0], got.Events[1], got.Events[2]
	if len(run.Hashes) != 4 || run.HasParent || len(other.Hashes) != 1 || other.Parent != uint64(b[1].Hash) || len(gone.Hashes) != 2 {
		t.Errorf("%+v", got.Events)
	}
	if c := p.Metrics(); c.DuplicateBlocks != 4 || c.UnknownRemoves != 2 || c.OrphanBlocks != 1 || c.HeldBlocks != 3 {
		t.Errorf("%v", c)
	}
}

func TestPublisherBatches(t *testing.T) {
	tap := newTap()
	p := mustPublisher(t, PublisherConfig{BatchBlocks: 4, BatchEvents: 2, FlushEvery: 15 * time.Second}, tap)
	a := chain(nil, 1, 2, 3, 4, 5, 6, 7, 8, 9)
	p.Publish([]kv.Event{a}) // 4 blocks, 4 blocks, and one waits
	first := tap.wait(0, 2)
	if len(first) != 2 || len(decoded(t, first[1]).Events[0].Hashes) != 4 || decoded(t, first[1]).Events[0].Parent != uint64(a.Blocks[3].Hash) {
		t.Fatalf("%d messages", len(first))
	}
	p.Publish([]kv.Event{chain(nil, 20)}) // a second event: full
	if b := decoded(t, tap.wait(2, 1)[0]); len(b.Events) != 2 {
		t.Fatalf("%d events", len(b.Events))
	}
	p.Publish([]kv.Event{chain(nil, 21)})
	p.Close() // sends the rest
	if len(tap.sent) != 4 {
		t.Errorf("%d messages", len(tap.sent))
	}
}

// However much waits, no batch has more than the limits say, so that NATS takes it and our
// own decoder does.
func TestPublisherBatchLimits(t *testing.T) {
	const size = 64
	h := holdUp{newTap(), make(chan struct{}, 100), make(chan struct{})}
	p, err := NewPublisher(PublisherConfig{BlockTokens: size, Heartbeat: -1}, h)
	if err != nil {
		t.Fatal(err)
	}
	number, hasher := kv.Token(1<<20), kv.NewHasher(kv.Namespace{}, size)
	run := func(blocks int, media ...uint64) kv.Event {
		ev := kv.Event{Kind: kv.Stored}
		for range blocks {
			number++
			tokens := slices.Repeat([]kv.Token{number}, size)
			hash, local := hasher.NextMedia(tokens, media)
			ev.Blocks = append(ev.Blocks, kv.Block{Hash: hash, Local: local, Tokens: tokens, Media: media})
		}
		hasher = kv.NewHasher(kv.Namespace{}, size)
		return ev
	}
	p.Publish([]kv.Event{run(1)})
	<-h.entered // what comes now waits together
	var evs []kv.Event
	for range p.cfg.BatchEvents - 2 {
		evs = append(evs, run(1))
	}
	evs = append(evs, run(p.cfg.BatchBlocks-p.cfg.BatchEvents), run(p.cfg.BatchBlocks), run(1), run(2*p.cfg.BatchEvents, 7))
	for range p.cfg.BatchEvents - 1 {
		evs = append(evs, removed(evs[0].Blocks...)) // becomes one
	}
	p.Publish(evs)
	close(h.free)
	p.Close()
	blocks := 0
	for i, m := range h.sent {
		b, n := decoded(t, m), 0
		for _, e := range b.Events {
			n += len(e.Hashes)
		}
		if blocks += n; n > p.cfg.BatchBlocks || len(b.Events) > p.cfg.BatchEvents || len(m.Payload) > 1<<20-1<<10 {
			t.Errorf("batch %d: %d blocks in %d events, %d bytes", i, n, len(b.Events), len(m.Payload))
		}
	}
	if want := 2*p.cfg.BatchBlocks + 2*p.cfg.BatchEvents + 1; blocks != want {
		t.Errorf("%d blocks, want %d", blocks, want)
	}
}

func TestPublisherBatchesByTime(t *testing.T) {
	tap := newTap()
	p := mustPublisher(t, PublisherConfig{FlushEvery: time.Millisecond}, tap)
	p.Publish([]kv.Event{chain(nil, 1)})
	if b := decoded(t, tap.wait(0, 1)[0]); len(b.Events) != 1 {
		t.Errorf("%d events", len(b.Events))
	}
	p.Close()
}

func TestPublisherHeartbeats(t *testing.T) {
	tap := newTap()
	p := mustPublisher(t, PublisherConfig{Heartbeat: time.Millisecond, DP: 3}, tap)
	got := tap.wait(0, 3)
	p.Close()
	if b := decoded(t, got[2]); len(b.Events) != 0 || b.Rank != 3 || got[2].Seq != 2 {
		t.Errorf("%+v, number %d", b, got[2].Seq)
	}
}

// A cache may be busy with what is nothing to readers, or a batch may wait: they hear a
// heartbeat all the same, or something better.
func TestPublisherIsNeverSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tap := newTap()
		p := mustPublisher(t, PublisherConfig{Heartbeat: time.Second}, tap)
		a := chain(nil, 1)
		for range 21 {
			p.Publish([]kv.Event{a}) // again and again
			time.Sleep(time.Second / 2)
		}
		p.Close()
		if m := p.Metrics(); m.Heartbeats != 10 || m.DuplicateBlocks != 20 {
			t.Errorf("in ten seconds: %v", m)
		}
		slow := mustPublisher(t, PublisherConfig{Heartbeat: time.Second, FlushEvery: 15 * time.Second}, newTap())
		slow.Publish([]kv.Event{a})
		time.Sleep(3500 * time.Millisecond)
		synctest.Wait()
		if m := slow.Metrics(); m.Batches != 3 || m.Heartbeats != 2 {
			t.Errorf("in three and a half seconds: %v", m)
		}
		slow.Close()
	})
}

// holdUp is a Transport that lets go only when it is told to.
type holdUp struct {
	*tap
	entered, free chan struct{}
}

func (h holdUp) Send(m Message) error {
	h.entered <- struct{}{}
	<-h.free
	return h.tap.Send(m)
}

// What can't be queued is not lost in silence: all is cleared, and what is built
// up anew is true.
func TestPublisherOverflow(t *testing.T) {
	h := holdUp{newTap(), make(chan struct{}, 100), make(chan struct{})}
	p := mustPublisher(t, PublisherConfig{QueueEvents: 3}, h)
	a := chain(nil, 1, 2)
	if !p.Publish([]kv.Event{a}) {
		t.Fatal("the first was refused")
	}
	<-h.entered // it waits in Send now
	b, c := chain(nil, 5), chain(&a.Blocks[1], 3)
	if !p.Publish([]kv.Event{removed(a.Blocks[1]), b, c}) {
		t.Fatal("three were refused")
	}
	if p.Publish([]kv.Event{chain(nil, 6)}) {
		t.Fatal("the fourth was taken")
	}
	d := chain(nil, 7, 8)
	if !p.Publish([]kv.Event{chain(&a.Blocks[0], 9), d}) {
		t.Fatal("refused after the gap")
	}
	close(h.free)
	p.Close()
	got := make(map[tierHash]kv.LocalHash)
	residency(t, got, payloads(h.sent)...)
	want := map[tierHash]kv.LocalHash{}
	for _, b := range d.Blocks {
		want[tierHash{hash: b.Hash}] = b.Local
	}
	if s := differ(got, want); s != "" {
		t.Error(s)
	}
	if m := p.Metrics(); m.LostEvents != 4 || m.Gaps != 1 || m.OrphanBlocks != 1 {
		t.Errorf("%v", m)
	}
	if p.Publish([]kv.Event{a}) {
		t.Error("taken after Close")
	}
}

func TestPublisherGapAndFollow(t *testing.T) {
	tap := newTap()
	p := mustPublisher(t, PublisherConfig{}, tap)
	lagged := errors.New("lagged")
	err := p.Follow(func(yield func(kv.Event, error) bool) {
		_ = yield(chain(nil, 1), nil) && yield(kv.Event{}, lagged)
	})
	if !errors.Is(err, lagged) {
		t.Fatal(err)
	}
	p.Close()
	last := decoded(t, tap.sent[len(tap.sent)-1])
	if e := last.Events[len(last.Events)-1]; e.Kind != wire.AllBlocksCleared || p.Metrics().HeldBlocks != 0 {
		t.Errorf("%v, %v", e.Kind, p.Metrics())
	}
}

// A salt that is called as the adapter is a salt all the same: without it others' look-ups
// would find the blocks.
func TestSaltLikeAdapter(t *testing.T) {
	ns := kv.Namespace{LoRA: "sql", Salt: "sql"}
	hasher := kv.NewHasher(ns, testBlock)
	ev, want := kv.Event{Kind: kv.Stored, Namespace: ns}, make(map[tierHash]kv.LocalHash)
	for n := range kv.Token(3) {
		tokens := slices.Repeat([]kv.Token{n}, testBlock)
		hash, local := hasher.NextMedia(tokens, []uint64{7})
		ev.Blocks = append(ev.Blocks, kv.Block{Hash: hash, Local: local, Tokens: tokens, Media: []uint64{7}})
		want[tierHash{hash: hash}] = local
	}
	tap := newTap()
	p := mustPublisher(t, PublisherConfig{}, tap)
	p.Publish([]kv.Event{ev})
	p.Close()
	got := make(map[tierHash]kv.LocalHash)
	residency(t, got, payloads(tap.sent)...)
	if d := differ(got, want); d != "" {
		t.Error(d)
	}
}

func TestPublisherHeldBlocks(t *testing.T) {
	for blocks, gaps := range map[int]uint64{2: 0, 3: 0, 4: 1} {
		tap := newTap()
		p := mustPublisher(t, PublisherConfig{HeldBlocks: 3}, tap)
		p.Publish([]kv.Event{chain(nil, []kv.Token{1, 2, 3, 4}[:blocks]...)})
		p.Close()
		if m := p.Metrics(); m.Gaps != gaps || gaps > 0 && m.HeldBlocks != 0 {
			t.Errorf("%d blocks: %v", blocks, m)
		}
	}
}

func TestPublisherRefuses(t *testing.T) {
	tap := newTap()
	p := mustPublisher(t, PublisherConfig{}, tap)
	short := chain(nil, 1)
	short.Blocks[0].Tokens = short.Blocks[0].Tokens[:2]
	p.Publish([]kv.Event{short, chain(&short.Blocks[0], 2)})
	p.Close()
	if m := p.Metrics(); m.RefusedBlocks != 1 || m.OrphanBlocks != 1 || len(tap.sent) > 0 {
		t.Errorf("%v", m)
	}
	broken := errors.New("no such port")
	if _, err := NewPublisher(PublisherConfig{BlockTokens: 1}, failing{tap, broken}); !errors.Is(err, broken) {
		t.Errorf("%v", err)
	}
	if _, err := NewPublisher(PublisherConfig{BlockTokens: -1, BatchBlocks: -1}, tap); err == nil {
		t.Error("a bad configuration was taken")
	}
}

type failing struct {
	*tap
	err error
}

func (f failing) Start(History) error { return f.err }

func TestRing(t *testing.T) {
	r := newRing(3, 10)
	push := func(seq uint64, bytes int) { r.push(Message{Seq: seq, Payload: make([]byte, bytes)}) }
	expect := func(from uint64, want ...uint64) {
		t.Helper()
		var got []uint64
		for _, m := range r.since(nil, from) {
			got = append(got, m.Seq)
		}
		if !slices.Equal(got, want) {
			t.Errorf("from %d: %v, want %v", from, got, want)
		}
	}
	expect(0)
	push(0, 1)
	push(1, 1)
	push(2, 1)
	expect(0, 0, 1, 2)
	push(3, 1)
	expect(0, 1, 2, 3)
	expect(3, 3)
	expect(4)
	push(4, 9)
	expect(0, 3, 4)
	push(5, 100)
	expect(0, 5)
	push(6, 1)
	expect(0, 6)
	if r.bytes != 1 {
		t.Errorf("%d bytes", r.bytes)
	}
}

// A parent that came again after its child is before it in a dump all the same;
// a child whose parent stays away is not in it.
func TestSnapshotOrder(t *testing.T) {
	p := mustPublisher(t, PublisherConfig{})
	defer p.Close()
	a := chain(nil, 1, 2, 3)
	root := chain(nil, 1)
	p.Publish([]kv.Event{a, removed(a.Blocks[0]), chain(nil, 30, 31), removed(chain(nil, 30).Blocks[0])})
	got := make(map[tierHash]kv.LocalHash)
	residency(t, got, mustSnapshot(t, p).Batches...)
	if len(got) != 0 {
		t.Errorf("%d blocks that can't be reached", len(got))
	}
	p.Publish([]kv.Event{root})
	residency(t, got, mustSnapshot(t, p).Batches...)
	if len(got) != 3 {
		t.Errorf("%d blocks, want 3", len(got))
	}
}

func BenchmarkPublish(b *testing.B) {
	const blocks, size = 64, 16
	p, err := NewPublisher(PublisherConfig{BlockTokens: size, QueueEvents: 1 << 20, RingBatches: 100})
	if err != nil {
		b.Fatal(err)
	}
	ev := kv.Event{Kind: kv.Stored}
	hasher := kv.NewHasher(kv.Namespace{}, size)
	for i := range blocks {
		tokens := make([]kv.Token, size)
		for j := range tokens {
			tokens[j] = kv.Token(i*7919+j*104729) % 150000
		}
		hash, local := hasher.Next(tokens)
		ev.Blocks = append(ev.Blocks, kv.Block{Hash: hash, Local: local, Tokens: tokens})
	}
	pair := []kv.Event{ev, removed(ev.Blocks...)}
	for b.Loop() {
		for !p.Publish(slices.Clone(pair)) {
			b.Fatal("the queue was full")
		}
		if _, err := p.Snapshot(context.Background()); err != nil { // waits until it is sent
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/(2*blocks), "ns/block")
	p.Close()
}

// witness looks at the publisher's figures when a message is sent.
type witness struct {
	*tap
	pub atomic.Pointer[Publisher]
	saw chan PublisherMetrics
}

func (w *witness) Send(m Message) error {
	w.saw <- w.pub.Load().Metrics()
	return w.tap.Send(m)
}

// Who sees a message finds it in the figures.
func TestFiguresComeFirst(t *testing.T) {
	w := &witness{tap: newTap(), saw: make(chan PublisherMetrics, 100)}
	p := mustPublisher(t, PublisherConfig{}, w)
	defer p.Close()
	w.pub.Store(p)
	tree := newTree(1)
	for i := range uint64(20) {
		p.Publish([]kv.Event{tree.grow()})
		if m := <-w.saw; m.Batches != i+1 || m.NextSeq != i+1 || m.HeldBlocks != uint64(len(tree.held)) || m.Bytes == 0 {
			t.Errorf("with batch %d: %v", i, m)
		}
	}
}
