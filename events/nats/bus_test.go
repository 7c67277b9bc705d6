package nats

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/coppice-llm/coppice/events"
	"github.com/coppice-llm/coppice/events/eventstest"
)

func bus(t testing.TB, cfg BusConfig) *Bus {
	t.Helper()
	cfg.Retry = time.Millisecond
	if cfg.Topic == "" {
		cfg.Topic = "talk"
	}
	b, err := NewBus(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b
}

// meet waits until all buses receive each other's messages and have no more to read.
func meet(t testing.TB, all ...*Bus) {
	t.Helper()
	for i, from := range all {
		for j, to := range all {
			if i == j {
				continue
			}
			word := fmt.Sprintf("hello %d %d", i, j)
			// Repeat with growing intervals: otherwise the messages would fill the queue of a
			// slow receiver.
			for heard, wait := false, 10*time.Millisecond; !heard; wait *= 2 {
				if err := from.Send([]byte(word)); err != nil && !errors.Is(err, ErrNoServer) {
					t.Fatal(err)
				}
				select {
				case m := <-to.Messages():
					heard = string(m) == word
				case <-time.After(wait): // sent before the receiver had subscribed
				case <-t.Context().Done():
					t.Fatal("the test is over")
				}
			}
		}
	}
	for i, from := range all {
		end := fmt.Sprintf("end %d", i)
		if err := from.Send([]byte(end)); err != nil {
			t.Fatal(err)
		}
		for j, to := range all {
			for i != j && string(<-to.Messages()) != end {
			}
		}
	}
}

func TestBus(t *testing.T) {
	s := server(t, "127.0.0.1:0")
	a, b, c := bus(t, BusConfig{Config: Config{URL: s.URL()}}), bus(t, BusConfig{Config: Config{URL: s.URL()}}), bus(t, BusConfig{Config: Config{URL: s.URL()}})
	elsewhere := bus(t, BusConfig{Config: Config{URL: s.URL()}, Topic: "other"})
	meet(t, a, b, c)
	before := a.Metrics().Received
	const n = 1000
	for i := range n {
		if err := a.Send(fmt.Append(nil, i)); err != nil {
			t.Fatal(err)
		}
	}
	for _, to := range []*Bus{b, c} {
		for i := range n {
			if m := <-to.Messages(); string(m) != fmt.Sprint(i) {
				t.Fatalf("message %d is %q", i, m)
			}
		}
	}
	if err := b.Send([]byte("last")); err != nil {
		t.Fatal(err)
	}
	if m := <-a.Messages(); string(m) != "last" { // with none of its own before it
		t.Errorf("a heard %q", m)
	}
	if m := a.Metrics(); m.Received != before+1 || !m.Connected || m.Connects != 1 || m.TooLong+m.Dropped > 0 || !a.Connected() {
		t.Errorf("%v", m)
	}
	if m := elsewhere.Metrics(); m.Received != 0 {
		t.Errorf("on another topic: %v", m)
	}
	if err := errors.Join(a.Close(), a.Close()); err != nil {
		t.Fatal(err)
	}
	if _, ok := <-a.Messages(); ok {
		t.Error("a message behind Close")
	}
	if err := a.Send(nil); !errors.Is(err, ErrNoServer) {
		t.Errorf("sent behind Close: %v", err)
	}
}

// TestBusServerRestart: the server is killed and comes back. No message is kept for it, and all
// receive each other again.
func TestBusServerRestart(t *testing.T) {
	s := server(t, "127.0.0.1:0")
	at, err := url.Parse(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	a, b := bus(t, BusConfig{Config: Config{URL: at.String()}}), bus(t, BusConfig{Config: Config{URL: at.String()}})
	if err := a.Send([]byte("unheard")); !errors.Is(err, ErrNoServer) {
		t.Errorf("without a server: %v", err)
	}
	for range 3 {
		s = server(t, at.Host)
		<-a.Up()
		<-b.Up()
		meet(t, a, b)
		s.Close()
		for a.Connected() || b.Connected() {
			time.Sleep(time.Millisecond)
		}
		for range 10 {
			if err := a.Send([]byte("unheard")); !errors.Is(err, ErrNoServer) {
				t.Errorf("without a server: %v", err)
			}
		}
	}
	if m := a.Metrics(); m.Connects != 3 || m.Connected || m.Unsent < 31 {
		t.Errorf("%v", m)
	}
}

// TestBusLimits: too long messages are refused by the sender and ignored by the receiver. A
// receiver that does not read loses messages, which are counted.
func TestBusLimits(t *testing.T) {
	s := server(t, "127.0.0.1:0")
	small := bus(t, BusConfig{Config: Config{URL: s.URL()}, MaxMessage: 100, QueueMessages: 10})
	large := bus(t, BusConfig{Config: Config{URL: s.URL()}, MaxMessage: 1 << 30})
	meet(t, small, large)
	if n := large.MaxMessage(); n != 1<<20 { // the server's limit
		t.Errorf("%d bytes at most", n)
	}
	if err := small.Send(make([]byte, 101)); err == nil || !strings.Contains(err.Error(), "at most 100") {
		t.Error(err)
	}
	if err := large.Send(make([]byte, 1<<20+1)); err == nil || errors.Is(err, nats.ErrMaxPayload) {
		t.Error(err)
	}
	for _, n := range []int{101, 1 << 20, 100} {
		if err := large.Send(make([]byte, n)); err != nil {
			t.Fatal(err)
		}
	}
	if m := <-small.Messages(); len(m) != 100 {
		t.Errorf("heard %d bytes", len(m))
	}
	for range 1000 {
		if err := large.Send([]byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	for m := small.Metrics(); m.Dropped == 0; m = small.Metrics() {
		if t.Context().Err() != nil {
			t.Fatal(m)
		}
		time.Sleep(time.Millisecond)
	}
	if m := small.Metrics(); m.TooLong != 2 || m.Unsent == 0 {
		t.Errorf("%v", m)
	}
	for again := false; !again; { // it still works
		if err := large.Send([]byte("again")); err != nil {
			t.Fatal(err)
		}
		again = string(<-small.Messages()) == "again"
	}
}

func TestBusConfig(t *testing.T) {
	for want, cfg := range map[string]BusConfig{
		"Topic": {}, "Topic \"a.b\"": {Topic: "a.b"}, "Prefix": {Topic: "a", Config: Config{Prefix: "*"}},
		"MaxMessage": {Topic: "a", MaxMessage: -1}, "QueueMessages": {Topic: "a", QueueMessages: -1}, "QueueBytes": {Topic: "a", QueueBytes: -1},
	} {
		if b, err := NewBus(cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, %v, want %q", b, err, want)
		}
	}
}

// expeller forwards connections to a server. expel sends all clients an error after which the NATS
// client closes the connection permanently, as a server does for a message that exceeds its limit.
type expeller struct {
	url string

	mu    sync.Mutex
	conns map[net.Conn]bool // to clients
}

func newExpeller(t *testing.T, to string) *expeller {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	x := &expeller{url: "nats://" + l.Addr().String(), conns: map[net.Conn]bool{}}
	var wait sync.WaitGroup
	t.Cleanup(func() { l.Close(); x.expel(); wait.Wait() })
	wait.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", strings.TrimPrefix(to, "nats://"))
			if err != nil {
				client.Close()
				continue
			}
			x.mu.Lock()
			x.conns[client] = true
			x.mu.Unlock()
			wait.Go(func() { io.Copy(server, client); server.Close() })
			wait.Go(func() { io.Copy(client, server); client.Close() })
		}
	})
	return x
}

func (x *expeller) expel() {
	x.mu.Lock()
	defer x.mu.Unlock()
	for c := range x.conns {
		io.WriteString(c, "-ERR 'Maximum Payload Violation'\r\n")
		c.Close()
	}
	clear(x.conns)
}

// TestExpelled: a server that ends a connection permanently does not end the client: it opens
// another one.
func TestExpelled(t *testing.T) {
	s := server(t, "127.0.0.1:0")
	x := newExpeller(t, s.URL())
	a, b := bus(t, BusConfig{Config: Config{URL: x.url}}), bus(t, BusConfig{Config: Config{URL: s.URL()}})
	meet(t, a, b)
	through := config(s)
	through.URL = x.url
	sender := publisher(t, through, events.PublisherConfig{})
	c, heard, hears := eventstest.NewCache(), eventstest.NewSet(), eventstest.NewSet()
	follow(t, heard, config(s), events.SubscriberConfig{})
	follow(t, hears, through, events.SubscriberConfig{})
	for n := range 3 {
		sender.Publish(c.Step(4))
		heard.Until(c.Held)
		hears.Until(c.Held)
		meet(t, a, b)
		x.expel()
		until(t, "another connection", func() bool { return a.Metrics().Connects == uint64(n)+2 })
	}
	sender.Publish(c.Step(4))
	heard.Until(c.Held)
	hears.Until(c.Held)
	meet(t, a, b)
}
