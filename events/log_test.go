package events

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"testing"

	"github.com/coppice-llm/coppice/kv"
)

// numbers returns the numbers of the kept batches from a number on.
func numbers(t *testing.T, l *Log, from uint64) (seqs []uint64) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for {
		batches, err := l.Read(ctx, from)
		if errors.Is(err, context.Canceled) {
			return seqs
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range batches {
			for _, ev := range b.Events {
				if ev.Seq != b.Seq {
					t.Errorf("an event of batch %d has number %d", b.Seq, ev.Seq)
				}
			}
			seqs = append(seqs, b.Seq)
			from = b.Seq + 1
		}
	}
}

func TestLogKeepsTheLast(t *testing.T) {
	l := NewLog(LogConfig{KeepEvents: 10}, nil)
	for n := range kv.Token(7) {
		l.Append([]kv.Event{chain(nil, 2*n), chain(nil, 2*n+1)})
	}
	if got := numbers(t, l, 2); !slices.Equal(got, []uint64{2, 3, 4, 5, 6}) {
		t.Errorf("kept are %v", got)
	}
	for _, from := range []uint64{0, 1, 8} {
		if _, err := l.Read(context.Background(), from); !errors.Is(err, ErrLagged) {
			t.Errorf("from %d: %v", from, err)
		}
	}
	if !l.beat(7) || l.beat(7) {
		t.Error("a heartbeat has the next number, or none")
	}
	if got := numbers(t, l, 3); !slices.Equal(got, []uint64{3, 4, 5, 6, 7}) {
		t.Errorf("kept are %v", got)
	}
	l.Append(slices.Repeat([]kv.Event{{Kind: kv.Removed}}, 100)) // more than it keeps: the newest stays
	if first, next := l.Kept(); first != 8 || next != 9 {
		t.Errorf("kept are [%d, %d)", first, next)
	}
	small := NewLog(LogConfig{KeepBytes: 1000}, nil)
	for range 9 {
		small.Append([]kv.Event{chain(nil, 1)})
	}
	if first, _ := small.Kept(); first != 6 || small.bytes > 1000 {
		t.Errorf("from %d on %d bytes are kept", first, small.bytes)
	}
}

// TestLogEnds: a batch or the end of the log wakes a waiting reader.
func TestLogEnds(t *testing.T) {
	l := NewLog(LogConfig{}, nil)
	read := make(chan error)
	go func() {
		_, err := l.Read(context.Background(), 0)
		read <- err
		_, err = l.Read(context.Background(), 1)
		read <- err
		_, err = l.Read(context.Background(), 2)
		read <- err
	}()
	l.Append([]kv.Event{chain(nil, 1)})
	if err := <-read; err != nil {
		t.Error(err)
	}
	gone := errors.New("gone")
	l.Close(gone)
	if err := <-read; err != nil { // all that it held is gone
		t.Error(err)
	}
	if err := <-read; err != gone {
		t.Error(err)
	}
	l.Append([]kv.Event{chain(nil, 1)})
	if _, next := l.Kept(); next != 2 {
		t.Error("it goes on after its end")
	}
}

// TestLogBatchLimits: no batch exceeds the limits, however many events a step has, so that
// NATS and our own decoder accept it; and no event is lost between two batches.
func TestLogBatchLimits(t *testing.T) {
	const size = 64
	tap := newTap()
	p := mustPublisher(t, PublisherConfig{}, LogConfig{}, nil, tap)
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
	most, events := 512<<10/(9+5*size), p.log.cfg.BatchEvents
	var evs []kv.Event
	for range events - 2 {
		evs = append(evs, run(1))
	}
	salted := run(3)
	salted.Namespace.Salt = "s"
	evs = append(evs, run(most-events), run(most), run(1), run(2*events, 7), run(3*most+1), salted)
	for range events - 1 {
		evs = append(evs, removed(evs[0].Blocks...)) // becomes one
	}
	p.publish(evs...)
	p.Close()
	blocks, last, follows := 0, uint64(0), 0
	for i, m := range tap.sent {
		b, n := decoded(t, m), 0
		for _, e := range b.Events {
			n += len(e.Hashes)
			if e.HasParent && e.Parent == last {
				follows++
			}
			if len(e.Hashes) > 0 {
				last = e.Hashes[len(e.Hashes)-1]
			}
		}
		if blocks += n; n > most || len(b.Events) > events || len(m.Payload) > 1<<20-1<<10 {
			t.Errorf("batch %d: %d blocks in %d events, %d bytes", i, n, len(b.Events), len(m.Payload))
		}
	}
	if want := 5*most + 3*events + 2; blocks != want || follows != 2*events-1+3+1 {
		t.Errorf("%d blocks, want %d; %d events go on where the last ended", blocks, want, follows)
	}
}

// heap returns the bytes in use.
func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestEventMemory: a worker's memory for events is bounded by its log and does not grow
// with its cache: of a million cached tokens only the last events are held.
func TestEventMemory(t *testing.T) {
	const blocks, size, step = 1_000_000 / 16, 16, 25
	before := heap()
	p := mustPublisher(t, PublisherConfig{}, LogConfig{KeepEvents: 500}, nil)
	full := mustPublisher(t, PublisherConfig{}, LogConfig{}, nil)
	fill := func(p *voice) int64 {
		hasher := kv.NewHasher(kv.Namespace{}, size)
		for at := 0; at < blocks; at += step {
			ev := kv.Event{Kind: kv.Stored, Blocks: make([]kv.Block, step)}
			tokens := make([]kv.Token, size*step)
			for i := range ev.Blocks {
				ev.Blocks[i].Tokens = tokens[i*size : (i+1)*size]
				ev.Blocks[i].Hash, ev.Blocks[i].Local = hasher.Next(ev.Blocks[i].Tokens)
			}
			p.publish(ev)
		}
		return heap() - before
	}
	short := fill(p)
	whole := fill(full) - short
	t.Logf("a million tokens: %d bytes with the last 500 of %d events, %d with all of them", short, blocks/step, whole)
	if short > 4<<20 || whole > 12<<20 {
		t.Errorf("%d and %d bytes", short, whole)
	}
	p.Close()
	full.Close()
}
