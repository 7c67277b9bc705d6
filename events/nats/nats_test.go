package nats

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/coppice-llm/coppice/events"
	"github.com/coppice-llm/coppice/events/eventstest"
	"github.com/coppice-llm/coppice/internal/bounds"
	"github.com/coppice-llm/coppice/internal/leaks"
	"github.com/coppice-llm/coppice/internal/natstest"
	"github.com/coppice-llm/coppice/kv"
)

func TestMain(m *testing.M) { os.Exit(leaks.Run(m)) }

var rank1 = kv.Rank{Worker: 1}

// patience is the longest wait of a test for an event.
const patience = time.Minute

// server starts a server, at the port in addr if given. For a moment another process's
// connection may use a released port.
func server(t testing.TB, addr string) *natstest.Server {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		s, err := natstest.Start(natstest.Config{Addr: addr})
		if err == nil {
			t.Cleanup(s.Close)
			return s
		}
		if !errors.Is(err, syscall.EADDRINUSE) || time.Now().After(end) {
			t.Fatal(err)
		}
	}
}

// connect returns a plain client of a server.
func connect(t *testing.T, s *natstest.Server) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect(s.URL(), nats.Timeout(patience))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

func TestPortTaken(t *testing.T) {
	s := server(t, "127.0.0.1:0")
	at, err := url.Parse(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := natstest.Start(natstest.Config{Addr: at.Host}); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("%v", err)
	}
}

func config(s *natstest.Server) Config {
	return Config{URL: s.URL(), Worker: "w1", Retry: time.Millisecond}
}

func publisher(t testing.TB, cfg Config, pc events.PublisherConfig) *eventstest.Publisher {
	t.Helper()
	if pc.Heartbeat == 0 {
		pc.Heartbeat = time.Millisecond
	}
	p, err := eventstest.NewPublisher(pc, NewSender(cfg))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p
}

func follow(t testing.TB, sink events.Sink, cfg Config, sc events.SubscriberConfig) *events.Subscriber {
	t.Helper()
	sc.BlockTokens = eventstest.BlockTokens
	sc.RetryMax = 10 * time.Millisecond
	sub, err := events.NewSubscriber(sc, sink)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sub.Close)
	src, err := NewSource(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := sub.Add(rank1, src, events.Follow{}); err != nil {
		t.Fatal(err)
	}
	return sub
}

func TestLoopback(t *testing.T) {
	s := server(t, "127.0.0.1:0")
	p := publisher(t, config(s), events.PublisherConfig{})
	c, sink := eventstest.NewCache(), eventstest.NewSet()
	for range 20 {
		p.Publish(c.Step(4))
	}
	sub := follow(t, sink, config(s), events.SubscriberConfig{})
	sink.Until(c.Held)
	for range 200 {
		p.Publish(c.Step(4))
	}
	sink.Until(c.Held)
	st, _ := sub.Status(rank1)
	if st.State != events.Live || st.Epoch != p.Epoch() || st.Counts.Malformed+st.Counts.OrphanBlocks+st.Counts.UnknownWorker > 0 {
		t.Errorf("%+v", st)
	}
}

// TestTwoFleets: fleets that share a server differ only by their prefix.
func TestTwoFleets(t *testing.T) {
	s := server(t, "127.0.0.1:0")
	type fleet struct {
		p    *eventstest.Publisher
		c    *eventstest.Cache
		sink *eventstest.Set
	}
	var fleets []fleet
	for _, prefix := range []string{"", "fleet-b", "fleet-c"} {
		cfg := config(s)
		cfg.Prefix = prefix
		f := fleet{publisher(t, cfg, events.PublisherConfig{}), eventstest.NewCache(), eventstest.NewSet()}
		follow(t, f.sink, cfg, events.SubscriberConfig{})
		fleets = append(fleets, f)
		for _, f := range fleets { // including earlier events
			f.p.Publish(f.c.Step(4))
			f.sink.Until(f.c.Held)
		}
	}
}

// TestServerRestart: the server is killed and comes back empty, while the cache keeps changing.
func TestServerRestart(t *testing.T) {
	s := server(t, "127.0.0.1:0")
	cfg := config(s)
	p := publisher(t, cfg, events.PublisherConfig{})
	c, sink := eventstest.NewCache(), eventstest.NewSet()
	sub := follow(t, sink, cfg, events.SubscriberConfig{Grace: time.Minute})
	for range 3 {
		p.Publish(c.Step(4))
		sink.Until(c.Held)
		at, err := url.Parse(s.URL())
		if err != nil {
			t.Fatal(err)
		}
		s.Close()
		for range 20 {
			p.Publish(c.Step(4))
		}
		s = server(t, at.Host)
		p.Publish(c.Step(4))
		sink.Until(c.Held)
	}
	if n := sub.Counts(); n.Replays+n.Snapshots == 0 || n.OrphanBlocks > 0 { // a snapshot where the server came back before the loss was seen
		t.Errorf("%v", n)
	}
}

// TestRouterRestarts: a router that starts late, or again, gets missed events from the worker
// itself: no server keeps them.
func TestRouterRestarts(t *testing.T) {
	s := server(t, "127.0.0.1:0")
	p := publisher(t, config(s), events.PublisherConfig{})
	c := eventstest.NewCache()
	for range 3 {
		for range 20 {
			p.Publish(c.Step(4))
		}
		sink := eventstest.NewSet()
		sub := follow(t, sink, config(s), events.SubscriberConfig{})
		sink.Until(c.Held)
		sub.Close()
	}
}

// TestPublisherRestart: the publisher is killed, and its silence clears its blocks. A successor
// is trusted by its own events.
func TestPublisherRestart(t *testing.T) {
	s := server(t, "127.0.0.1:0")
	p := publisher(t, config(s), events.PublisherConfig{})
	c, sink := eventstest.NewCache(), eventstest.NewSet()
	follow(t, sink, config(s), events.SubscriberConfig{Silence: 50 * time.Millisecond})
	for range 3 {
		p.Publish(c.Step(4))
		sink.Until(c.Held)
		_ = p.Close()
		sink.Until(map[kv.BlockHash]bool{})
		next := c.Next
		c = eventstest.NewCache()
		c.Next = next
		p = publisher(t, config(s), events.PublisherConfig{})
	}
	p.Publish(c.Step(4))
	sink.Until(c.Held)
}

// TestGapIsReplayed: a reader that was too slow asks the publisher for a replay.
func TestGapIsReplayed(t *testing.T) {
	s := server(t, "127.0.0.1:0")
	cfg := config(s)
	p := publisher(t, cfg, events.PublisherConfig{Heartbeat: -1})
	c, sink := eventstest.NewCache(), eventstest.NewSet()
	p.Publish(c.Step(4))
	sub := follow(t, sink, cfg, events.SubscriberConfig{})
	sink.Until(c.Held)
	nc := connect(t, s)
	// Invalid messages, and a sequence number from the future.
	_ = nc.Publish("coppice-kv.w1.0", []byte("hostile"))
	_ = nc.PublishMsg(&nats.Msg{Subject: "coppice-kv.w1.0", Header: header(p.Epoch(), 1000), Data: []byte("hostile")})
	_ = nc.Flush()
	p.Publish(c.Step(4))
	sink.Until(c.Held)
	for sub.Counts().Impossible == 0 || sub.Counts().Malformed == 0 {
		p.Publish(c.Step(1))
		sink.Until(c.Held)
	}
}

func TestAnswers(t *testing.T) {
	s := server(t, "127.0.0.1:0")
	cfg := config(s)
	src, err := NewSource(cfg)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for range src.Start() {
		}
	}()
	defer src.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for err = nats.ErrConnectionClosed; errors.Is(err, nats.ErrConnectionClosed); { // until it is connected
		_, err = src.Snapshot(ctx)
	}
	if !errors.Is(err, ErrNoPublisher) {
		t.Errorf("%v", err)
	}
	p := publisher(t, cfg, events.PublisherConfig{Heartbeat: -1})
	c := eventstest.NewCache()
	for range 5 {
		p.Publish(c.Step(4))
		_, _ = p.Snapshot(ctx) // the request has been sent
	}
	var snap events.Snapshot
	for err = ErrNoPublisher; errors.Is(err, ErrNoPublisher); {
		snap, err = src.Snapshot(ctx)
	}
	if err != nil || snap.Next != 5 || snap.Epoch != p.Epoch() || len(snap.Batches) != 1 {
		t.Errorf("%+v, %v", snap, err)
	}
	var got []uint64
	epoch, err := src.Replay(ctx, 3, func(m events.Message) error {
		got = append(got, m.Seq)
		return nil
	})
	if err != nil || epoch != p.Epoch() || fmt.Sprint(got) != "[3 4]" {
		t.Errorf("%v, %d, %v", got, epoch, err)
	}
	if epoch, err := src.Replay(ctx, 5, nil); err != nil || epoch != p.Epoch() {
		t.Errorf("nothing: %d, %v", epoch, err)
	}
	if _, err := src.ask(ctx, "nonsense", nil); err == nil {
		t.Error("nonsense was answered")
	}
	full := errors.New("full")
	if _, err := src.Replay(ctx, 0, func(events.Message) error { return full }); !errors.Is(err, full) {
		t.Errorf("%v", err)
	}
	small := cfg
	small.SnapshotBytes = 10
	src2, err := NewSource(small)
	if err != nil {
		t.Fatal(err)
	}
	src2.nc = src.nc
	if _, err := src2.Snapshot(ctx); err == nil {
		t.Error("a snapshot beyond the limit was taken")
	}
}

// TestEndlessSnapshot: a snapshot of empty batches has no bytes, but still a limit.
func TestEndlessSnapshot(t *testing.T) {
	s := server(t, "127.0.0.1:0")
	nc := connect(t, s)
	cfg := config(s)
	cfg.SnapshotBytes = 1 << 16
	if _, err := nc.Subscribe(bounds.Fill(cfg).askSubject(), func(m *nats.Msg) {
		for range cfg.SnapshotBytes {
			_ = nc.PublishMsg(&nats.Msg{Subject: m.Reply, Header: header(1, 7)})
		}
	}); err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	src, err := NewSource(cfg)
	if err != nil {
		t.Fatal(err)
	}
	src.nc = nc
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if _, err := src.Snapshot(ctx); err == nil || ctx.Err() != nil {
		t.Errorf("%v", err)
	}
}

func TestNames(t *testing.T) {
	for _, worker := range []string{"", "a.b", "a b", "*", ">", "a\n"} {
		if _, err := NewSource(Config{Worker: worker}); err == nil {
			t.Errorf("source of %q", worker)
		}
		if _, err := eventstest.NewPublisher(events.PublisherConfig{}, NewSender(Config{Worker: worker})); err == nil {
			t.Errorf("sender of %q", worker)
		}
	}
	for _, cfg := range []natstest.Config{{}, {Addr: "127.0.0.1:x"}} {
		if s, err := natstest.Start(cfg); err == nil {
			s.Close()
			t.Errorf("%+v", cfg)
		}
	}
}

func BenchmarkThroughput(b *testing.B) {
	const blocks, steps = 64, 100
	s := server(b, "127.0.0.1:0")
	p := publisher(b, config(s), events.PublisherConfig{Heartbeat: time.Second})
	c, sink := eventstest.NewCache(), eventstest.NewSet()
	follow(b, sink, config(s), events.SubscriberConfig{})
	p.Publish(c.Step(blocks))
	sink.Until(c.Held)
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

// TestUnreadableURL: an error about a URL does not contain its password.
func TestUnreadableURL(t *testing.T) {
	for _, at := range []string{"nats://me:hu?sh@127.0.0.1:1", "nats://me:hush%@127.0.0.1:1", "nats://me:hu#sh@127.0.0.1:1"} {
		a, err := NewAnnouncer(AnnouncerConfig{Config: Config{URL: at, Worker: "w"}, Payload: []byte("x")})
		if err == nil {
			a.Close()
			t.Errorf("%s is taken", at)
		} else if strings.Contains(err.Error(), "hu") || strings.Contains(err.Error(), "sh@") {
			t.Errorf("%s: %v", at, err)
		}
	}
}
