package events

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/coppice-llm/coppice/events/eventlog"
	"github.com/coppice-llm/coppice/kv"
)

// world is a publisher, its contents after each batch, and a reader of it.
type world struct {
	t       *testing.T
	tree    *tree
	tap     *tap
	pub     *voice
	history []map[tierHash]kv.LocalHash // before batch i
	pipe    *pipe
	sink    *naive
	sub     *Subscriber
}

// Kinds of publishers by the requests that they answer.
type kind struct {
	name             string
	epoch            bool // told by each message
	replay, snapshot bool
	ring             int // events that the log keeps; a batch has three, usually
}

var kinds = []kind{
	{"ours over NATS", true, true, true, 3000},
	{"ours over NATS, short ring", true, true, true, 9},
	{"ours over ZMQ", false, true, true, 60},
	{"snapshots alone", false, false, true, 1},
	{"vLLM with replay", false, true, false, 3000},
	{"vLLM with replay, short ring", false, true, false, 15},
	{"vLLM", false, false, false, 1},
}

func newWorld(t *testing.T, k kind, seed, epoch uint64) *world {
	w := &world{t: t, tree: newTree(seed), pipe: newPipe(), sink: newNaive()}
	w.begin(k, epoch)
	if k.replay {
		w.pipe.replay = func(from uint64) (uint64, []Message, error) {
			messages := slices.Collect(w.pub.Replay(from))
			if !k.epoch {
				for i := range messages {
					messages[i].Epoch = 0
				}
				return 0, messages, nil
			}
			return w.pub.Epoch(), messages, nil
		}
	}
	if k.snapshot {
		w.pipe.snapshot = func() (Snapshot, error) { return w.pub.Snapshot(context.Background()) }
	}
	w.sub = mustSubscriber(t, SubscriberConfig{Grace: time.Hour, RetryMin: time.Microsecond, RetryMax: time.Microsecond}, w.sink, w.pipe)
	return w
}

// begin starts a publisher over an empty cache.
func (w *world) begin(k kind, epoch uint64) {
	w.tap = newTap()
	w.pub = mustPublisher(w.t, PublisherConfig{Epoch: epoch}, eventlog.Config{KeepEvents: k.ring}, w.tree, w.tap)
	w.history = []map[tierHash]kv.LocalHash{{}}
}

// restart kills the publisher and starts another one.
func (w *world) restart(k kind, seed, epoch uint64) {
	w.pub.Close()
	w.tree = newTree(seed + epoch)
	w.begin(k, epoch)
	w.pipe.frames <- Frame{Kind: FrameDisconnected}
	w.pipe.frames <- Frame{Kind: FrameConnected}
	if !k.replay && !k.snapshot { // otherwise a publisher with the same numbers can't be told apart
		first := w.publish(1)
		first.Epoch = 0
		w.pipe.send(first)
	}
}

// publish makes one batch of a few changes and returns it.
func (w *world) publish(n int) Message {
	w.pub.step(n)
	m := w.tap.wait(len(w.history)-1, 1)[0]
	w.history = append(w.history, maps.Clone(w.tree.held))
	return m
}

// check compares the sink with the contents before the due batch: it must never have more
// and, if exact, not less.
func (w *world) check(what string, exact bool) {
	w.t.Helper()
	w.pipe.settle()
	st := status(w.t, w.sub)
	if st.Doubted && !exact {
		return // the next batch tells
	}
	got := w.sink.held(rank1)
	if st.State != Live || st.Next == 0 {
		if len(got) > 0 {
			w.t.Fatalf("%s: %d blocks while %v", what, len(got), st.State)
		}
		return
	}
	want := w.history[st.Next]
	for k, v := range got {
		if u, ok := want[k]; !ok || u != v {
			w.t.Fatalf("%s: before batch %d of %d: too much: %s\n%v", what, st.Next, len(w.history)-1, differ(got, want), st.Counts)
		}
	}
	if exact {
		if d := differ(got, want); d != "" || st.Next != uint64(len(w.history)-1) {
			w.t.Fatalf("%s: before batch %d of %d: %s\n%v", what, st.Next, len(w.history)-1, d, st.Counts)
		}
	}
}

// TestFaults: messages are lost, duplicated, swapped and damaged; connections break;
// publishers restart. The sink never holds more than the publisher held before the due
// batch, and in the end holds all of it if the publisher can report that.
func TestFaults(t *testing.T) {
	for _, k := range kinds {
		for seed := range uint64(12) {
			t.Run(fmt.Sprintf("%s/seed=%d", k.name, seed), func(t *testing.T) {
				w := newWorld(t, k, seed, 100)
				defer func() { w.pub.Close() }()
				rng := rand.New(rand.NewPCG(seed, 2))
				w.pipe.frames <- Frame{Kind: FrameConnected}
				h := hurter{world: w, k: k, rng: rng, epoch: 100}
				for i := range 150 {
					h.step(i, seed)
				}
				// The end has no faults: the next batches show what is missing. A
				// postponed recovery is due after a microsecond, so any frame starts it.
				for range 5 {
					m := w.publish(2)
					if !k.epoch {
						m.Epoch = 0
					}
					w.pipe.send(m)
					w.check("at the end", false)
				}
				w.check("at the end", k.snapshot)
				c := w.sub.Counts()
				if c.Gaps == 0 || c.Stale == 0 || c.Impossible == 0 || c.Malformed == 0 {
					t.Errorf("faults did not happen: %v", c)
				}
				if !k.snapshot && c.Snapshots > 0 || k.snapshot && c.Snapshots == 0 || k.name == "vLLM" && c.Clears == 0 {
					t.Errorf("%v", c)
				}
			})
		}
	}
}

// hurter sends a world's batches with faults.
type hurter struct {
	*world
	k     kind
	rng   *rand.Rand
	epoch uint64
	late  *Message
}

// step publishes a batch with a random fault, and checks the sink.
func (w *hurter) step(i int, seed uint64) {
	m := w.publish(1 + w.rng.IntN(4))
	if !w.k.epoch {
		m.Epoch = 0
	}
	switch fault := w.rng.IntN(16); {
	case fault == 0: // lost
		return
	case fault == 1: // doubled
		w.pipe.send(m)
		w.pipe.send(m)
	case fault == 2 && w.late == nil: // late
		w.late = &m
		return
	case fault == 3 && len(m.Payload) > 20: // hurt
		hurt := m
		hurt.Payload = append([]byte(nil), m.Payload[:len(m.Payload)-1-w.rng.IntN(10)]...)
		w.pipe.send(hurt)
	case fault == 4: // the connection broke, and is there again
		w.pipe.frames <- Frame{Kind: FrameDisconnected}
		w.pipe.frames <- Frame{Kind: FrameConnected}
		w.pipe.send(m)
	case fault == 5 && i%3 == 0: // killed and restarted
		w.epoch++
		w.late = nil
		w.restart(w.k, seed, w.epoch)
	case fault == 6: // nonsense
		if w.k.replay || w.k.snapshot { // otherwise the number can't be disproved
			w.pipe.send(Message{Epoch: m.Epoch, Seq: m.Seq + 1000, Payload: m.Payload})
		}
		w.pipe.send(Message{Epoch: m.Epoch, Seq: EndSeq, Payload: m.Payload})
		w.pipe.send(Message{Epoch: m.Epoch, Seq: m.Seq, Payload: []byte("hostile")})
		return
	default:
		w.pipe.send(m)
	}
	w.check(fmt.Sprintf("step %d", i), false)
	if w.late != nil && w.rng.IntN(3) == 0 {
		w.pipe.send(*w.late)
		w.late = nil
	}
}

// TestReconnect: a rank keeps its contents if the numbers continue after a new connection:
// it is not cleared, and no snapshot is made. Missed batches are replayed where possible.
func TestReconnect(t *testing.T) {
	for _, k := range kinds {
		for _, missed := range []int{0, 1} {
			t.Run(fmt.Sprintf("%s/missed=%d", k.name, missed), func(t *testing.T) {
				w := newWorld(t, k, 5, 100)
				defer func() { w.pub.Close() }()
				send := func(m Message) {
					if !k.epoch {
						m.Epoch = 0
					}
					w.pipe.send(m)
				}
				w.pipe.frames <- Frame{Kind: FrameConnected}
				for range 10 {
					send(w.publish(3))
				}
				w.check("before", true)
				before := w.sub.Counts()
				w.pipe.frames <- Frame{Kind: FrameDisconnected}
				for range missed {
					w.publish(3)
				}
				w.pipe.frames <- Frame{Kind: FrameConnected}
				w.pipe.settle()
				if got := w.sink.held(rank1); len(got) == 0 && (missed == 0 || k.replay) {
					t.Errorf("the contents are gone")
				}
				send(w.publish(3))
				w.check("after", k.snapshot || k.replay || missed == 0)
				after := w.sub.Counts()
				if kept := missed == 0 && !(k.snapshot && !k.replay) || k.replay; kept && (after.Clears != before.Clears || after.Snapshots != before.Snapshots) {
					t.Errorf("the contents were not kept: before %v\nafter %v", before, after)
				}
			})
		}
	}
}

// TestReconnectToAnother: a publisher that restarted meanwhile is detected by its replay
// or by its next batch.
func TestReconnectToAnother(t *testing.T) {
	for _, k := range kinds {
		for batches := range 12 { // of the new one, before the connection is there again
			w := newWorld(t, k, 5, 100)
			w.pipe.frames <- Frame{Kind: FrameConnected}
			send := func(m Message) {
				if !k.epoch {
					m.Epoch = 0
				}
				w.pipe.send(m)
			}
			for range 6 {
				send(w.publish(3))
			}
			if batches == 6 && !k.replay && !k.snapshot {
				w.pub.Close()
				continue // the next number is the one that is due: the restart is not detectable
			}
			w.pipe.frames <- Frame{Kind: FrameDisconnected}
			w.pub.Close()
			w.tree = newTree(77)
			w.begin(k, 101)
			for range batches {
				w.publish(3)
			}
			w.pipe.frames <- Frame{Kind: FrameConnected}
			send(w.publish(3))
			w.check(fmt.Sprintf("%s: after %d batches of the new one", k.name, batches), false)
			w.pub.Close()
		}
	}
}

// TestReplayAlone: a publisher without snapshots is recovered exactly while it keeps all
// its batches and none is damaged.
func TestReplayAlone(t *testing.T) {
	k := kind{"vLLM with replay", false, true, false, 3000}
	w := newWorld(t, k, 3, 5)
	defer w.pub.Close()
	for range 10 {
		w.publish(3)
	}
	w.pipe.frames <- Frame{Kind: FrameConnected} // late: what was before is replayed
	w.check("joined late", true)
	for i := range 30 {
		if m := w.publish(3); i%4 > 0 {
			m.Epoch = 0
			w.pipe.send(m)
		}
		if i%4 > 0 {
			w.check("after a gap", true)
		}
	}
	if c := w.sub.Counts(); c.Gaps != 8 || c.Replays != 9 || c.Clears != 1 || c.OrphanBlocks > 0 {
		t.Errorf("%v", c)
	}
}

// TestFirstBatchesMissed: the first batches were sent after the replay request and before
// the subscription was active. They are requested, not skipped.
func TestFirstBatchesMissed(t *testing.T) {
	w := newWorld(t, kind{"vLLM with replay", false, true, false, 3000}, 8, 5)
	defer w.pub.Close()
	w.pipe.frames <- Frame{Kind: FrameConnected}
	w.check("before the first batch", false)
	for range 3 {
		w.publish(3) // the subscription is on its way
	}
	m := w.publish(3)
	w.pipe.send(Message{Seq: m.Seq, Payload: m.Payload})
	w.check("after the first that was heard", true)
}

// TestNoHistory: blocks below an unknown block are not stored.
func TestNoHistory(t *testing.T) {
	w := newWorld(t, kind{ring: 1}, 4, 5)
	defer w.pub.Close()
	for range 10 {
		w.publish(3)
	}
	w.pipe.frames <- Frame{Kind: FrameConnected}
	for range 40 {
		m := w.publish(3)
		w.pipe.send(Message{Seq: m.Seq, Payload: m.Payload})
		w.check("without history", false)
	}
	if c := w.sub.Counts(); c.OrphanBlocks == 0 || c.StoredBlocks == 0 || c.Batches != 40 {
		t.Errorf("%v", c)
	}
}

// TestRingTooShort: more batches are missing than the publisher kept. The kept ones are
// not applied on top of outdated contents.
func TestRingTooShort(t *testing.T) {
	for _, k := range kinds {
		w := newWorld(t, k, 6, 5)
		w.pipe.frames <- Frame{Kind: FrameConnected}
		for round := range 8 {
			for range 5 * round {
				w.publish(6) // withheld
			}
			m := w.publish(2)
			if !k.epoch {
				m.Epoch = 0
			}
			w.pipe.send(m)
			w.check(fmt.Sprintf("%s: %d missing", k.name, 5*round), k.snapshot)
		}
		w.pub.Close()
	}
}
