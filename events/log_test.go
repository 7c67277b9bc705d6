package events

import (
	"runtime"
	"slices"
	"testing"

	"github.com/coppice-llm/coppice/events/eventlog"
	"github.com/coppice-llm/coppice/kv"
)

// TestLogBatchLimits: no batch exceeds the limits, however many events a step has, so that
// NATS and our own decoder accept it; and no event is lost between two batches.
func TestLogBatchLimits(t *testing.T) {
	const size = 64
	tap := newTap()
	p := mustPublisher(t, PublisherConfig{}, eventlog.Config{}, nil, tap)
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
	most, events := 512<<10/(9+5*size), eventlog.Config{}.WithDefaults().BatchEvents
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
	p := mustPublisher(t, PublisherConfig{}, eventlog.Config{KeepEvents: 500}, nil)
	full := mustPublisher(t, PublisherConfig{}, eventlog.Config{}, nil)
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
