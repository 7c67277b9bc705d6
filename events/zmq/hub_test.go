package zmq

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-zeromq/zmq4"

	"github.com/coppice-llm/coppice/events"
)

// hubOf starts a hub on the loopback and returns it with the refusals that it reports.
func hubOf(t *testing.T, cfg HubConfig) (*Hub, chan Refusal) {
	t.Helper()
	refusals := make(chan Refusal, 64)
	cfg.Endpoint, cfg.Refused = "tcp://127.0.0.1:0", func(r Refusal) { refusals <- r }
	if cfg.RefuseFor == 0 {
		cfg.RefuseFor = time.Nanosecond
	}
	h, err := Listen(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	return h, refusals
}

// speaker is a publisher that connects to a hub.
type speaker struct {
	t *testing.T
	*conn
	next uint64
}

func speakTo(t *testing.T, h *Hub) *speaker {
	t.Helper()
	nc, err := net.Dial("tcp", h.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	c, err := handshake(nc, "PUB", maxCommand, time.Minute, "SUB")
	if err != nil {
		t.Fatal(err)
	}
	return &speaker{t: t, conn: c}
}

// says sends a message of this topic. The hub may have closed the connection.
func (s *speaker) says(topic string) {
	_ = errors.Join(s.write([]byte(topic), binary.BigEndian.AppendUint64(nil, s.next), batchOf(s.next)), s.flush())
	s.next++
}

// ends returns when the hub has closed the connection.
func (s *speaker) ends() {
	s.t.Helper()
	s.SetReadDeadline(time.Now().Add(time.Minute))
	if _, err := io.Copy(io.Discard, s.r); err != nil && errors.Is(err, context.DeadlineExceeded) {
		s.t.Error(err)
	}
}

// next returns the next frame of a source.
func nextOf(t *testing.T, frames <-chan events.Frame) events.Frame {
	t.Helper()
	select {
	case f := <-frames:
		return f
	case <-time.After(time.Minute):
		t.Fatal("no frame")
		return events.Frame{}
	}
}

func kinds(t *testing.T, frames <-chan events.Frame, want ...events.FrameKind) {
	t.Helper()
	for _, k := range want {
		if f := nextOf(t, frames); f.Kind != k {
			t.Fatalf("frame of kind %v, want %v", f.Kind, k)
		}
	}
}

var local = Publisher{Host: "127.0.0.1", Pods: []string{"a", "127.0.0.1:8000", "127.0.0.1"}}

// TestHub: several publishers over one port, each to its own source; also one of another implementation.
func TestHub(t *testing.T) {
	h, _ := hubOf(t, HubConfig{})
	b := local
	b.Pods = []string{"b", "127.0.0.1:8001", "127.0.0.1"}
	exact := Publisher{Topic: "all mine", Host: "localhost", Pods: b.Pods}
	sources := map[string]*BoundSource{"kv@127.0.0.1:8000@model": h.Source(local), "b": h.Source(b), "all mine": h.Source(exact)}
	for topic, src := range sources {
		frames := src.Start()
		s := speakTo(t, h)
		s.says(topic)
		s.says(topic)
		kinds(t, frames, events.FrameConnected)
		for n := range uint64(2) {
			if f := nextOf(t, frames); f.Kind != events.FrameBatch || f.Topic != topic || f.Seq != n || !slices.Equal(f.Payload, batchOf(n)) {
				t.Errorf("%s: %+v", topic, f)
			}
		}
		s.Close()
		kinds(t, frames, events.FrameDisconnected)
		pub := socket(t, zmq4.NewPub)
		if err := pub.Dial(endpoint(h.Addr())); err != nil {
			t.Fatal(err)
		}
		for connected := false; !connected; {
			_ = pub.SendMulti(zmq4.NewMsgFrom([]byte(topic), binary.BigEndian.AppendUint64(nil, 7), batchOf(7))) // until it has read the subscription
			select {
			case f := <-frames:
				connected = f.Kind == events.FrameConnected
			case <-time.After(time.Millisecond):
			}
		}
		if f := nextOf(t, frames); f.Kind != events.FrameBatch || f.Seq != 7 {
			t.Errorf("%s: %+v", topic, f)
		}
		if err := src.Close(); err != nil {
			t.Error(err)
		}
	}
	if c := h.Counts(); c.Connections != 6 || c.WrongHost+c.Taken+c.OtherTopic+c.Handshake+c.Crowded != 0 {
		t.Errorf("%+v", c)
	}
}

// TestHubNames: a topic is that of the publisher with the most telling name, or of no publisher.
func TestHubNames(t *testing.T) {
	a := Publisher{Pods: []string{"a", "10.0.0.1:8000", "10.0.0.1"}}
	b := Publisher{Pods: []string{"b", "10.0.0.1:8001", "10.0.0.1"}}
	c := Publisher{Topic: "kv@a@m", Pods: []string{"c", "10.0.0.2:8000", "10.0.0.2"}}
	h, _ := hubOf(t, HubConfig{})
	names := map[*BoundSource]string{h.Source(a): "a", h.Source(b): "b", h.Source(c): "c"}
	for s := range names {
		s.Start()
		defer s.Close()
	}
	for topic, want := range map[string]string{
		"kv@10.0.0.1:8000@m": "a", "kv@10.0.0.1:8001@m@x": "b", "kv@b": "b", "b": "b", "10.0.0.1:8000": "a", "kv@a@m": "c", "kv@a@other": "a",
		"kv@10.0.0.1@m": "", "kv@10.0.0.2@m": "", "": "", "kv@": "", "kv@@m": "", "kv@x@m": "",
	} {
		h.mu.Lock()
		got := names[h.named(topic)]
		h.mu.Unlock()
		if got != want {
			t.Errorf("%q is the topic of %q, want %q", topic, got, want)
		}
	}
}

// refused waits for a refusal.
func refused(t *testing.T, refusals <-chan Refusal, why error, topic string) {
	t.Helper()
	select {
	case r := <-refusals:
		if r.Why != why || r.Topic != topic || r.From != netip.MustParseAddr("127.0.0.1") {
			t.Errorf("%+v, want %v of %q", r, why, topic)
		}
	case <-time.After(time.Minute):
		t.Errorf("not refused: %v", why)
	}
}

// TestHubChecksAddresses: a connection can't speak for a worker at another address.
func TestHubChecksAddresses(t *testing.T) {
	h, refusals := hubOf(t, HubConfig{lookup: func(_ context.Context, host string) ([]netip.Addr, error) {
		if host == "nowhere" {
			return nil, errors.New("no such host")
		}
		return []netip.Addr{netip.MustParseAddr("10.1.2.3"), netip.MustParseAddr("::ffff:127.0.0.1")}, nil
	}})
	far, named, lost := local, local, local
	far.Host, far.Pods = "10.1.2.3", []string{"far"}
	named.Host, named.Pods = "a-name", []string{"named"}
	lost.Host, lost.Pods = "nowhere", []string{"lost"}
	for _, p := range []Publisher{far, lost} {
		other := h.Source(p)
		defer other.Close()
		other.Start()
		s := speakTo(t, h)
		s.says("kv@" + p.Pods[0] + "@m")
		s.ends()
		refused(t, refusals, errWrongHost, "kv@"+p.Pods[0]+"@m")
	}
	byName := h.Source(named)
	defer byName.Close()
	byNameFrames := byName.Start()
	s := speakTo(t, h)
	s.says("named")
	kinds(t, byNameFrames, events.FrameConnected, events.FrameBatch)
	s.Close()
	kinds(t, byNameFrames, events.FrameDisconnected)
	if c := h.Counts(); c.WrongHost != 2 {
		t.Errorf("%+v", c)
	}
}

// TestHubRefuses: a connection can't speak for a worker that has one, or for two.
func TestHubRefuses(t *testing.T) {
	h, refusals := hubOf(t, HubConfig{})
	src := h.Source(local)
	frames := src.Start()
	first := speakTo(t, h)
	first.says("a")
	kinds(t, frames, events.FrameConnected, events.FrameBatch)
	liar := speakTo(t, h)
	liar.says("a")
	liar.ends()
	refused(t, refusals, errTaken, "a")
	first.says("a") // the first one goes on
	kinds(t, frames, events.FrameBatch)
	first.says("named")
	first.ends()
	refused(t, refusals, errOtherTopic, "a")
	kinds(t, frames, events.FrameDisconnected)
	next := speakTo(t, h)
	next.says("a") // its place is free again
	kinds(t, frames, events.FrameConnected, events.FrameBatch)
	_ = errors.Join(next.write([]byte("a")), next.flush())
	kinds(t, frames, events.FrameMalformed)
	if _, err := next.Conn.Write([]byte{0xf8, 1, 'a'}); err != nil { // unknown flags
		t.Error(err)
	}
	kinds(t, frames, events.FrameMalformed, events.FrameDisconnected)
	if c := h.Counts(); c.Taken != 1 || c.OtherTopic != 1 || c.Malformed != 2 {
		t.Errorf("%+v", c)
	}
	if err := src.Close(); err != nil {
		t.Error(err)
	}
}

// TestHubIsBounded: peers that are no publishers, and a crowd from one address, are refused.
func TestHubIsBounded(t *testing.T) {
	h, refusals := hubOf(t, HubConfig{MaxConnsPerHost: 4})
	for _, bad := range []string{"GET / HTTP/1.1\r\n\r\n" + string(make([]byte, 64))} {
		nc, err := net.Dial("tcp", h.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(nc, bad)
		_, _ = io.Copy(io.Discard, nc)
		nc.Close()
		refused(t, refusals, errHandshake, "")
	}
	for range 5 { // the connection before may still be counted
		nc, err := net.Dial("tcp", h.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
	}
	refused(t, refusals, errCrowded, "")
	if c := h.Counts(); c.Handshake != 1 || c.Crowded == 0 {
		t.Errorf("%+v", c)
	}
}

// TestHubAndLeavingWorkers: what arrives for a worker that has left, or has not come yet, is dropped; when it comes, the
// open connection speaks for it.
func TestHubAndLeavingWorkers(t *testing.T) {
	h, _ := hubOf(t, HubConfig{AnyAddress: true})
	away := local
	away.Host = "10.1.2.3" // any address will do
	s := speakTo(t, h)
	dropped := func() {
		t.Helper()
		before := h.Counts().NoWorker
		for end := time.Now().Add(time.Minute); h.Counts().NoWorker == before; time.Sleep(time.Millisecond) {
			if s.says("a"); time.Now().After(end) {
				t.Fatal("nothing is dropped")
			}
		}
	}
	for range 2 {
		dropped()
		src := h.Source(away)
		frames := src.Start()
		var saying sync.WaitGroup
		saying.Go(func() {
			for range 1000 { // the connection may wait for its next message
				s.says("a")
			}
		})
		kinds(t, frames, events.FrameConnected, events.FrameBatch)
		done := make(chan struct{})
		go func() {
			defer close(done)
			for range frames {
			}
		}()
		if err := src.Close(); err != nil { // while frames arrive
			t.Error(err)
		}
		<-done
		saying.Wait()
	}
	if _, err := h.Source(away).Snapshot(t.Context()); !errors.Is(err, events.ErrUnsupported) {
		t.Errorf("%v", err)
	}
	if _, err := Listen(HubConfig{Endpoint: endpoint(h.Addr())}); err == nil {
		t.Error("two hubs listen at one address")
	}
	for _, bad := range []string{"", "ipc:///tmp/x", "tcp://a"} {
		if _, err := Listen(HubConfig{Endpoint: bad}); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}
