package events

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coppice-llm/coppice/events/eventlog"
	"github.com/coppice-llm/coppice/events/wire"
	"github.com/coppice-llm/coppice/kv"
)

func payloads(messages []Message) (p [][]byte) {
	for _, m := range messages {
		p = append(p, m.Payload)
	}
	return p
}

// TestPublisherContents: batches, snapshots and replays give the contents of the cache, at
// any time and in both forms.
func TestPublisherContents(t *testing.T) {
	for _, form := range []wire.Form{{}, {Arrays: true}} {
		for _, lc := range []eventlog.Config{{}, {BatchEvents: 1}, {BatchBlocks: 3}} {
			tap, tree := newTap(), newTree(7)
			p := mustPublisher(t, PublisherConfig{Form: form}, lc, tree, tap)
			for round := range 20 {
				p.publish(tree.steps(1 + round*5)...)
				s := mustSnapshot(t, p)
				got := make(map[tierHash]kv.LocalHash)
				residency(t, got, s.Batches...)
				if _, next := p.log.Kept(); differ(got, tree.held) != "" || s.Next != next {
					t.Fatalf("%+v: round %d: snapshot before %d: %s", lc, round, s.Next, differ(got, tree.held))
				}
			}
			again := slices.Collect(p.Replay(0))
			if err := p.Close(); err != nil {
				t.Fatal(err)
			}
			got := make(map[tierHash]kv.LocalHash)
			residency(t, got, payloads(tap.sent)...)
			if d := differ(got, tree.held); d != "" {
				t.Errorf("%+v: %s", lc, d)
			}
			for i, m := range tap.sent {
				if m.Seq != uint64(i) || m.Epoch != p.Epoch() || again[i].Seq != m.Seq || !slices.Equal(again[i].Payload, m.Payload) {
					t.Fatalf("message %d has number %d, epoch %d, or is replayed differently", i, m.Seq, m.Epoch)
				}
			}
			if m := p.Metrics(); m.NextSeq != uint64(len(tap.sent)) || m.HeldBlocks != uint64(len(tree.held)) || m.Lost > 0 || !tap.closed {
				t.Errorf("%v", m)
			}
			if _, err := p.Snapshot(context.Background()); err != nil { // the log is there still
				t.Errorf("snapshot after Close: %v", err)
			}
		}
	}
}

// block makes a chain of blocks. The tokens of a block are its number, four times.
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

// decoded returns the decoded payload of a message.
func decoded(t *testing.T, m Message) *wire.Batch {
	t.Helper()
	var d wire.Decoder
	b, err := d.Decode(m.Payload)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Consecutive blocks are one wire event, even across events of the cache.
func TestPublisherMerges(t *testing.T) {
	tap := newTap()
	p := mustPublisher(t, PublisherConfig{}, eventlog.Config{}, nil, tap)
	abc := chain(nil, 1, 2, 3)
	b := abc.Blocks
	more := chain(&b[2], 4)
	p.publish(abc, more, chain(&b[0], 9), removed(more.Blocks[0]), removed(b[2]))
	m := tap.wait(0, 1)[0]
	p.Close()
	got := decoded(t, m)
	if len(got.Events) != 3 {
		t.Fatalf("%d events", len(got.Events))
	}
	run, other, gone := got.Events[0], got.Events[1], got.Events[2]
	if len(run.Hashes) != 4 || run.HasParent || len(other.Hashes) != 1 || other.Parent != uint64(b[0].Hash) || len(gone.Hashes) != 2 {
		t.Errorf("%+v", got.Events)
	}
}

func TestPublisherHeartbeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tap := newTap()
		p := mustPublisher(t, PublisherConfig{Heartbeat: time.Second, DP: 3}, eventlog.Config{}, nil, tap)
		for range 10 { // events put it off
			time.Sleep(time.Second / 2)
			p.publish(chain(nil, 1))
		}
		time.Sleep(3500 * time.Millisecond)
		synctest.Wait()
		if m := p.Metrics(); m.Batches != 13 || m.Heartbeats != 3 || m.Events != 10 {
			t.Errorf("%v", m)
		}
		if b := decoded(t, tap.sent[12]); len(b.Events) != 0 || b.Rank != 3 || tap.sent[12].Seq != 12 {
			t.Errorf("%+v, number %d", b, tap.sent[12].Seq)
		}
		p.Close()
	})
}

// holdUp is a Transport whose Send blocks until the test releases it.
type holdUp struct {
	*tap
	entered, free chan struct{}
}

func (h holdUp) Send(m Message) error {
	h.entered <- struct{}{}
	<-h.free
	return h.tap.Send(m)
}

// TestPublisherHeldUp: while a transport blocks the publisher, batches may be lost;
// readers notice by the numbers.
func TestPublisherHeldUp(t *testing.T) {
	h := holdUp{newTap(), make(chan struct{}, 100), make(chan struct{})}
	p := mustPublisher(t, PublisherConfig{}, eventlog.Config{KeepEvents: 3}, nil, h)
	p.publish(chain(nil, 1))
	<-h.entered
	for n := range kv.Token(9) {
		p.publish(chain(nil, 2+n))
	}
	close(h.free)
	p.Close()
	var seqs []uint64
	for _, m := range h.sent {
		seqs = append(seqs, m.Seq)
	}
	if m := p.Metrics(); !slices.Equal(seqs, []uint64{0, 7, 8, 9}) || m.Lost != 6 {
		t.Errorf("sent %v: %v", seqs, m)
	}
}

// TestPublisherEndsWithItsLog: at the end of the log the publisher clears readers and
// ends.
func TestPublisherEndsWithItsLog(t *testing.T) {
	tap := newTap()
	p := mustPublisher(t, PublisherConfig{}, eventlog.Config{}, nil, tap)
	p.publish(chain(nil, 1))
	p.log.Close(errors.New("the node has failed"))
	p.publish(chain(nil, 2))
	<-p.Done()
	last := decoded(t, tap.sent[len(tap.sent)-1])
	if e := last.Events[0]; len(tap.sent) != 2 || e.Kind != wire.AllBlocksCleared || p.Metrics().HeldBlocks != 0 {
		t.Errorf("%v, %v", e.Kind, p.Metrics())
	}
	if err := p.Close(); err != nil || !errors.Is(p.Close(), ErrClosed) {
		t.Error(err)
	}
}

// TestPublisherEndsByATimeout: a node whose backend ran into a timeout of its own has failed,
// and is not taken for a log without news.
func TestPublisherEndsByATimeout(t *testing.T) {
	for _, cause := range []error{context.DeadlineExceeded, eventlog.ErrLagged} {
		synctest.Test(t, func(t *testing.T) {
			p := mustPublisher(t, PublisherConfig{Heartbeat: time.Hour}, eventlog.Config{}, nil, newTap())
			p.log.Close(fmt.Errorf("backend: %w", cause))
			time.Sleep(time.Minute)
			select {
			case <-p.Done():
			default:
				t.Errorf("the publisher still runs after its log has ended by %v", cause)
			}
			p.Close()
		})
	}
}

// TestSnapshotsAreShared: readers that ask at the same time share a snapshot that
// begins after they asked.
func TestSnapshotsAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, free, dumps := 0, make(chan struct{}), atomic.Int64{}
		log, err := eventlog.New(eventlog.Config{}, func(context.Context) ([]kv.Event, uint64, error) {
			began++
			<-free
			return nil, uint64(dumps.Add(1)), nil
		})
		if err != nil {
			t.Fatal(err)
		}
		p, err := NewPublisher(PublisherConfig{Heartbeat: -1}, log)
		if err != nil {
			t.Fatal(err)
		}
		answers := make(chan uint64, 10)
		ask := func() {
			s, err := p.Snapshot(context.Background())
			if err != nil {
				t.Error(err)
			}
			answers <- s.Next
		}
		go ask()
		synctest.Wait()
		for range 9 {
			go ask()
		}
		synctest.Wait()
		if began != 1 {
			t.Errorf("%d dumps began", began)
		}
		close(free)
		sum := uint64(0)
		for range 10 {
			sum += <-answers
		}
		if sum != 1+9*2 || p.Metrics().Snapshots != 2 {
			t.Errorf("%d dumps, %v", dumps.Load(), p.Metrics())
		}
		p.Close()
	})
}

// TestSaltLikeAdapter: a salt with the name of the adapter is still a salt: without it,
// lookups of other tenants would find the blocks.
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
	p := mustPublisher(t, PublisherConfig{}, eventlog.Config{}, nil, tap)
	p.publish(ev)
	p.Close()
	got := make(map[tierHash]kv.LocalHash)
	residency(t, got, payloads(tap.sent)...)
	if d := differ(got, want); d != "" {
		t.Error(d)
	}
}

func TestPublisherRefuses(t *testing.T) {
	tap, broken := newTap(), errors.New("no such port")
	log, err := eventlog.New(eventlog.Config{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := NewPublisher(PublisherConfig{}, log, failing{tap, broken}); !errors.Is(err, broken) || !tap.closed {
		t.Errorf("%v", err)
	}
}

type failing struct {
	*tap
	err error
}

func (f failing) Start(History) error { return f.err }

func BenchmarkPublish(b *testing.B) {
	const blocks, size = 64, 16
	tap := newTap()
	p := mustPublisher(b, PublisherConfig{}, eventlog.Config{KeepEvents: 100}, nil, tap)
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
		p.log.Append(slices.Clone(pair))
		tap.wait(0, 1)
		tap.sent = nil // nothing is on its way
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/(2*blocks), "ns/block")
	p.Close()
}

// witness reads the publisher's metrics when a message is sent.
type witness struct {
	*tap
	pub atomic.Pointer[voice]
	saw chan PublisherMetrics
}

func (w *witness) Send(m Message) error {
	w.saw <- w.pub.Load().Metrics()
	return w.tap.Send(m)
}

// TestFiguresComeFirst: a reader that has received a message finds it in the metrics.
func TestFiguresComeFirst(t *testing.T) {
	w := &witness{tap: newTap(), saw: make(chan PublisherMetrics, 100)}
	p := mustPublisher(t, PublisherConfig{}, eventlog.Config{}, nil, w)
	defer p.Close()
	w.pub.Store(p)
	tree := newTree(1)
	for i := range uint64(20) {
		p.publish(tree.grow())
		if m := <-w.saw; m.Batches != i+1 || m.NextSeq != i+1 || m.HeldBlocks != uint64(len(tree.held)) || m.Bytes == 0 {
			t.Errorf("with batch %d: %v", i, m)
		}
	}
}
