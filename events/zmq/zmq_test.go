package zmq

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zeromq/zmq4"
	"github.com/vmihailenco/msgpack/v5"
	"go.uber.org/goleak"

	"github.com/coppice-llm/coppice/events"
	"github.com/coppice-llm/coppice/events/eventstest"
	"github.com/coppice-llm/coppice/events/wire"
	"github.com/coppice-llm/coppice/internal/leaks"
	"github.com/coppice-llm/coppice/kv"
)

// zmq4's PUB leaks a goroutine, and its readers do so if messages were not read.
func TestMain(m *testing.M) {
	os.Exit(leaks.Run(m, goleak.IgnoreAnyFunction("github.com/go-zeromq/zmq4.(*pubMWriter).run"),
		goleak.IgnoreAnyFunction("github.com/go-zeromq/zmq4.(*qreader).listen")))
}

const (
	topic = "kv@10.0.0.1:8000@model"
	size  = eventstest.BlockTokens
)

func publisher(t testing.TB, cfg events.PublisherConfig, sc SenderConfig) (*eventstest.Publisher, *Sender) {
	t.Helper()
	if sc.Endpoint == "" {
		sc.Endpoint, sc.ReplayEndpoint = "tcp://127.0.0.1:0", "tcp://127.0.0.1:0"
	}
	sc.Bind, sc.Topic = true, topic
	// A freed port may for a moment be the local port of another connection.
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		s := NewSender(sc)
		p, err := eventstest.NewPublisher(cfg, s)
		if err == nil {
			t.Cleanup(func() { _ = p.Close() })
			return p, s
		}
		if !errors.Is(err, syscall.EADDRINUSE) || time.Now().After(end) {
			t.Fatal(err)
		}
	}
}

func endpoint(a net.Addr) string { return "tcp://" + a.String() }

func follow(t testing.TB, sink events.Sink, cfg SourceConfig, sub events.SubscriberConfig) *events.Subscriber {
	t.Helper()
	cfg.Redial = time.Millisecond
	sub.BlockTokens = size
	s, err := events.NewSubscriber(sub, sink)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	if err := s.Add(kv.Rank{Worker: 1}, NewSource(cfg), events.Follow{Topic: topic}); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestLoopback(t *testing.T) {
	p, s := publisher(t, events.PublisherConfig{Heartbeat: time.Millisecond}, SenderConfig{})
	c, sink := eventstest.NewCache(), eventstest.NewSet()
	for range 20 {
		p.Publish(c.Step(4))
	}
	sub := follow(t, sink, SourceConfig{Endpoint: endpoint(s.Addr()), ReplayEndpoint: endpoint(s.ReplayAddr()), Topic: "kv@"}, events.SubscriberConfig{})
	sink.Until(c.Held)
	for range 200 {
		p.Publish(c.Step(4))
	}
	sink.Until(c.Held)
	st, _ := sub.Status(kv.Rank{Worker: 1})
	if st.State != events.Live || st.Epoch != p.Epoch() || st.Counts.Malformed+st.Counts.OrphanBlocks+st.Counts.UnknownWorker > 0 {
		t.Errorf("%+v", st)
	}
}

// TestRestart: a publisher is killed and restarted at the same port. Its former contents
// are cleared, its present contents arrive.
func TestRestart(t *testing.T) {
	p, s := publisher(t, events.PublisherConfig{Heartbeat: time.Millisecond}, SenderConfig{})
	pub, replay := endpoint(s.Addr()), endpoint(s.ReplayAddr())
	c, sink := eventstest.NewCache(), eventstest.NewSet()
	follow(t, sink, SourceConfig{Endpoint: pub, ReplayEndpoint: replay}, events.SubscriberConfig{Grace: -1, RetryMax: 10 * time.Millisecond})
	for range 3 {
		p.Publish(c.Step(4))
		sink.Until(c.Held)
		_ = p.Close()
		sink.Until(map[kv.BlockHash]bool{})
		c = eventstest.NewCache()
		c.Next = 1000
		p, _ = publisher(t, events.PublisherConfig{Heartbeat: time.Millisecond}, SenderConfig{Endpoint: pub, ReplayEndpoint: replay})
		p.Publish(c.Step(4))
		sink.Until(c.Held)
	}
}

func socket(t *testing.T, make func(context.Context, ...zmq4.Option) zmq4.Socket) zmq4.Socket {
	ctx, cancel := context.WithCancel(context.Background())
	s := make(ctx, zmq4.WithDialerRetry(time.Millisecond))
	t.Cleanup(func() { cancel(); _ = s.Close() })
	return s
}

// TestTopicElsewhere: one message of another topic distinguishes a wrong prefix from
// silence; a prefix that gets messages again is followed again.
func TestTopicElsewhere(t *testing.T) {
	p, s := publisher(t, events.PublisherConfig{Heartbeat: time.Millisecond}, SenderConfig{})
	c, sink := eventstest.NewCache(), eventstest.NewSet()
	p.Publish(c.Step(4))
	sub, err := events.NewSubscriber(events.SubscriberConfig{BlockTokens: size}, sink)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sub.Close)
	add := func(worker kv.WorkerID, prefix string, quiet time.Duration) kv.Rank {
		r := kv.Rank{Worker: worker}
		src := NewSource(SourceConfig{Endpoint: endpoint(s.Addr()), ReplayEndpoint: endpoint(s.ReplayAddr()), Topic: prefix, Quiet: quiet})
		if err := sub.Add(r, src, events.Follow{}); err != nil {
			t.Fatal(err)
		}
		return r
	}
	until := func(what string, ok func() bool) {
		t.Helper()
		for end := time.Now().Add(time.Minute); !ok(); time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal(what)
			}
		}
	}
	wrong := add(1, "kv@10.0.0.2", time.Millisecond)
	until("another topic is told", func() bool {
		st, _ := sub.Status(wrong)
		return st.Elsewhere && st.Topic == topic && st.Counts.UnknownWorker == 1
	})
	until("the subscription to everything has ended", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		for q := range s.subs {
			q.mu.Lock()
			n := len(q.prefixes)
			q.mu.Unlock()
			if n != 1 {
				return false
			}
		}
		return true
	})
	right, waits := add(2, "kv@10.0.0.1", time.Nanosecond), add(3, "kv@10.0.0.2", time.Hour)
	until("what comes is heard", func() bool { st, _ := sub.Status(right); return st.Counts.Batches > 10 })
	for r, want := range map[kv.Rank]uint64{wrong: 1, right: 0, waits: 0} {
		if st, _ := sub.Status(r); st.Counts.UnknownWorker != want || st.Elsewhere != (want > 0) || r != right && st.Counts.Batches > 0 {
			t.Errorf("%v: %+v", r, st)
		}
	}
}

// TestOthersReadUs: another implementation reads our sockets: the stream, and replays by REQ and
// by DEALER.
func TestOthersReadUs(t *testing.T) {
	for _, arrays := range []bool{false, true} {
		p, s := publisher(t, events.PublisherConfig{Heartbeat: time.Millisecond, Form: wire.Form{Arrays: arrays}}, SenderConfig{})
		sub := socket(t, zmq4.NewSub)
		if err := errors.Join(sub.Dial(endpoint(s.Addr())), sub.SetOption(zmq4.OptionSubscribe, "kv@")); err != nil {
			t.Fatal(err)
		}
		first, err := sub.Recv() // a heartbeat shows that it listens
		if err != nil {
			t.Fatal(err)
		}
		c := eventstest.NewCache()
		p.Publish(c.Step(4))
		next := binary.BigEndian.Uint64(first.Frames[1])
		for read := false; !read; {
			next++
			m, err := sub.Recv()
			if err != nil {
				t.Fatal(err)
			}
			if len(m.Frames) != 3 || string(m.Frames[0]) != topic || binary.BigEndian.Uint64(m.Frames[1]) != next {
				t.Fatalf("%q, want number %d", m.Frames[:2], next)
			}
			read = othersDecode(t, m.Frames[2], arrays, c)
		}
		for _, kind := range []func(context.Context, ...zmq4.Option) zmq4.Socket{zmq4.NewReq, zmq4.NewDealer} {
			othersAsk(t, socket(t, kind), s, next)
		}
	}
}

// othersDecode decodes a payload with another library; false for a heartbeat.
func othersDecode(t *testing.T, payload []byte, arrays bool, c *eventstest.Cache) bool {
	t.Helper()
	var batch struct {
		_      struct{} `msgpack:",as_array"`
		Time   float64
		Events []any
		Rank   *int
	}
	if err := msgpack.Unmarshal(payload, &batch); err != nil {
		t.Fatal(err)
	}
	if len(batch.Events) == 0 {
		return false
	}
	var hashes []any
	if arrays {
		hashes = batch.Events[0].([]any)[1].([]any)
	} else {
		hashes = batch.Events[0].(map[string]any)["block_hashes"].([]any)
	}
	for _, h := range hashes {
		if !c.Held[kv.BlockHash(h.(uint64))] {
			t.Errorf("hash %v was not published", h)
		}
	}
	if len(hashes) != 4 || *batch.Rank != 0 {
		t.Errorf("%d hashes", len(hashes))
	}
	return true
}

// othersAsk requests a replay of everything, up to last at least.
func othersAsk(t *testing.T, ask zmq4.Socket, s *Sender, last uint64) {
	t.Helper()
	if err := ask.Dial(endpoint(s.ReplayAddr())); err != nil {
		t.Fatal(err)
	}
	request := [][]byte{binary.BigEndian.AppendUint64(nil, 0)}
	if ask.Type() == zmq4.Dealer {
		request = append([][]byte{nil}, request...)
	}
	if err := ask.SendMulti(zmq4.NewMsgFrom(request...)); err != nil {
		t.Fatal(err)
	}
	for seq := uint64(0); ; seq++ {
		m, err := ask.Recv()
		if err != nil {
			t.Fatal(err)
		}
		frames := m.Frames[len(m.Frames)-3:] // REQ removes the delimiter
		got := binary.BigEndian.Uint64(frames[1])
		if got == events.EndSeq {
			if len(frames[0])+len(frames[2]) > 0 || seq <= last {
				t.Errorf("end %q after %d", frames, seq)
			}
			return
		}
		if got != seq || string(frames[0]) != topic {
			t.Fatalf("%q, want number %d", frames[:2], seq)
		}
		if ask.Type() == zmq4.Req {
			return // REQ accepts one answer per question
		}
	}
}

// batchOf returns the payload of one block without a parent.
func batchOf(n uint64) []byte {
	return wire.AppendBatch(nil, &wire.Batch{Events: []wire.Event{{Kind: wire.BlockStored, Hashes: []uint64{n},
		Tokens: make([]uint32, size), BlockTokens: size}}}, wire.Form{})
}

// TestWeReadOthers: we read other implementations' sockets: a publisher like vLLM's, with
// replays in both forms and without snapshots.
func TestWeReadOthers(t *testing.T) {
	for _, withTopic := range []bool{false, true} {
		pub, router := socket(t, zmq4.NewPub), socket(t, zmq4.NewRouter)
		if err := errors.Join(pub.Listen("tcp://127.0.0.1:0"), router.Listen("tcp://127.0.0.1:0")); err != nil {
			t.Fatal(err)
		}
		var served sync.WaitGroup
		var sent atomic.Uint64
		sent.Store(10)
		served.Go(func() {
			for {
				m, err := router.Recv()
				if err != nil {
					return
				}
				id, from := m.Frames[0], binary.BigEndian.Uint64(m.Frames[2])
				say := func(topic string, seq uint64, payload []byte) {
					frames := [][]byte{id, nil, []byte(topic), binary.BigEndian.AppendUint64(nil, seq), payload}
					if !withTopic {
						frames = slices.Delete(frames, 2, 3)
					}
					_ = router.SendMulti(zmq4.NewMsgFrom(frames...))
				}
				for seq := range sent.Load() {
					if seq >= from {
						say(topic, seq, batchOf(seq))
					}
				}
				say("", events.EndSeq, nil)
			}
		})
		sink := eventstest.NewSet()
		sub := follow(t, sink, SourceConfig{Endpoint: endpoint(pub.Addr()), ReplayEndpoint: endpoint(router.Addr())}, events.SubscriberConfig{})
		want := make(map[kv.BlockHash]bool)
		for n := range kv.BlockHash(10) {
			want[n] = true
		}
		sink.Until(want) // by replay only
		// Messages that zmq4 sends before it has read the subscription are lost; the next
		// message shows the gap.
		for sub.Counts().Batches < 13 {
			seq := sent.Add(1) - 1
			_ = pub.SendMulti(zmq4.NewMsgFrom([]byte(topic), binary.BigEndian.AppendUint64(nil, seq), batchOf(seq)))
			want[kv.BlockHash(seq)] = true
			if sub.Counts().Batches > 10 {
				sink.Until(want)
			} else {
				runtime.Gosched()
			}
		}
		if c := sub.Counts(); c.Snapshots > 0 || c.Replays == 0 || c.Malformed > 0 {
			t.Errorf("%v", c)
		}
		sub.Close()
		_ = router.Close()
		served.Wait()
	}
}

func TestAnswersEnd(t *testing.T) {
	p, s := publisher(t, events.PublisherConfig{Heartbeat: -1}, SenderConfig{})
	src := NewSource(SourceConfig{Endpoint: endpoint(s.Addr()), ReplayEndpoint: endpoint(s.ReplayAddr())})
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := src.Snapshot(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	full := errors.New("full")
	c := eventstest.NewCache()
	p.Publish(c.Step(4))
	if snap, err := src.Snapshot(context.Background()); err != nil || snap.Next != 1 || len(snap.Batches) != 1 || snap.Epoch != p.Epoch() {
		t.Errorf("%+v, %v", snap, err)
	}
	if _, err := src.Replay(context.Background(), 0, func(events.Message) error { return full }); !errors.Is(err, full) {
		t.Errorf("%v", err)
	}
	small := NewSource(SourceConfig{Endpoint: endpoint(s.Addr()), ReplayEndpoint: endpoint(s.ReplayAddr()), SnapshotBytes: 10})
	if _, err := small.Snapshot(context.Background()); err == nil {
		t.Error("a snapshot beyond the limit was taken")
	}
	none := NewSource(SourceConfig{Endpoint: endpoint(s.Addr())})
	if _, err := none.Snapshot(context.Background()); !errors.Is(err, events.ErrUnsupported) {
		t.Errorf("%v", err)
	}
}

func TestEndpoints(t *testing.T) {
	for _, c := range []struct {
		endpoint string
		dp       uint32
		want     string
	}{
		{"tcp://*:5557", 0, "tcp://*:5557"}, {"tcp://*:5557", 3, "tcp://*:5560"}, {"tcp://[::]:5557", 1, "tcp://[::]:5558"},
		{"tcp://*:65535", 1, ""}, {"tcp://*", 1, ""}, {"ipc:///tmp/a", 0, "ipc:///tmp/a"}, {"ipc:///tmp/a", 1, ""},
	} {
		if got, err := RankEndpoint(c.endpoint, c.dp); got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%s, rank %d: %q, %v", c.endpoint, c.dp, got, err)
		}
	}
	for endpoint, want := range map[string]bool{"tcp://*:1": true, "tcp://[::]:1": true, "ipc://a": true, "tcp://router:1": false} {
		if binds(endpoint) != want {
			t.Errorf("%s: %v", endpoint, !want)
		}
	}
	for _, endpoint := range []string{"", "udp://a:1", "tcp://a", "ipc://"} {
		if _, err := eventstest.NewPublisher(events.PublisherConfig{}, NewSender(SenderConfig{Endpoint: endpoint})); err == nil {
			t.Errorf("%q was taken", endpoint)
		}
	}
}

// TestSenderConnects: a publisher connects to a subscriber that binds, as in vLLM if the
// endpoint names one host.
func TestSenderConnects(t *testing.T) {
	sub := socket(t, zmq4.NewSub)
	if err := errors.Join(sub.Listen("tcp://127.0.0.1:0"), sub.SetOption(zmq4.OptionSubscribe, "")); err != nil {
		t.Fatal(err)
	}
	p, err := eventstest.NewPublisher(events.PublisherConfig{Heartbeat: time.Millisecond},
		NewSender(SenderConfig{Endpoint: endpoint(sub.Addr()), Topic: topic}))
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if m, err := sub.Recv(); err != nil || string(m.Frames[0]) != topic {
		t.Errorf("%v, %v", m, err)
	}
}

// TestSenderConnectsAgain: a subscriber that binds is found again soon, however often it
// disconnected. An absent one is tried at growing intervals.
func TestSenderConnectsAgain(t *testing.T) {
	hello := "\xff" + strings.Repeat("\x00", 8) + "\x7f\x03\x00NULL" + strings.Repeat("\x00", 48) + "\x04\x19\x05READY\x0bSocket-Type\x00\x00\x00\x03SUB"
	for _, there := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := NewSender(SenderConfig{})
			dials := 0
			s.wait.Go(func() {
				s.connect(func() (net.Conn, error) {
					dials++
					if !there {
						return nil, net.ErrClosed
					}
					ours, theirs := net.Pipe()
					s.wait.Go(func() { // shakes hands and disconnects
						_, _ = io.ReadFull(theirs, make([]byte, len(hello)))
						_, _ = io.WriteString(theirs, hello)
						// Until the other end is idle: a pipe's deadlines fail once it is closed.
						time.Sleep(time.Millisecond)
						_ = theirs.Close()
					})
					return ours, nil
				})
			})
			time.Sleep(time.Minute)
			_ = s.Close()
			if there && dials < 1000 || !there && dials > 30 {
				t.Errorf("there %v: asked for %d times in a minute", there, dials)
			}
		})
	}
}

func BenchmarkThroughput(b *testing.B) {
	const blocks = 64
	p, s := publisher(b, events.PublisherConfig{}, SenderConfig{})
	c, sink := eventstest.NewCache(), eventstest.NewSet()
	follow(b, sink, SourceConfig{Endpoint: endpoint(s.Addr()), ReplayEndpoint: endpoint(s.ReplayAddr())}, events.SubscriberConfig{})
	p.Publish(c.Step(blocks))
	sink.Until(c.Held)
	const steps = 100
	n := 0
	for b.Loop() {
		b.StopTimer()
		var all [][]kv.Event
		for range steps {
			all = append(all, c.Step(blocks))
		}
		n += steps
		b.StartTimer()
		for _, evs := range all {
			p.Publish(evs)
		}
		sink.UntilChanges(n * (blocks + 1))
	}
	b.ReportMetric(float64(n*(blocks+1))/b.Elapsed().Seconds(), "blocks/s")
}
