package nats

import (
	"errors"
	"fmt"
	"net/url"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

func watcher(t *testing.T, cfg WatcherConfig) *Watcher {
	t.Helper()
	cfg.Retry = time.Millisecond
	if cfg.Grace == 0 {
		cfg.Grace = time.Hour // no worker is asked whether it is still there
	}
	cfg.meanwhile = make(chan func(*registry))
	w, err := NewWatcher(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Close() })
	return w
}

func announcer(t *testing.T, url, name, payload string, every time.Duration) *Announcer {
	t.Helper()
	a, err := NewAnnouncer(AnnouncerConfig{Config: Config{URL: url, Worker: name, Retry: time.Millisecond}, Payload: []byte(payload), Interval: every})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.Close() })
	return a
}

// next fails unless the next changes are these, in any order.
func (w *Watcher) next(t *testing.T, want ...string) {
	t.Helper()
	left := map[string]bool{}
	for _, c := range want {
		left[c] = true
	}
	for len(left) > 0 {
		select {
		case c := <-w.Changes():
			got := c.Name + "=" + string(c.Payload)
			if c.Gone() {
				got = c.Name + " gone"
			}
			if !left[got] {
				t.Fatalf("told %q, want %v", got, left)
			}
			delete(left, got)
		case <-t.Context().Done():
			t.Fatal("the test is over")
		}
	}
}

// settled waits for metrics: a change is reported before they are updated.
func settled(t *testing.T, read func() WatcherMetrics, ok func(WatcherMetrics) bool) {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		m := read()
		if ok(m) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%v", m)
		}
	}
}

// TestRegistration: a worker that is asked answers at once: the interval is an hour.
func TestRegistration(t *testing.T) {
	s := server(t, "127.0.0.1:0")
	a := announcer(t, s.URL(), "a", "card of a", time.Hour)
	b := announcer(t, s.URL(), "b", "card of b", time.Hour)
	// The watcher must not ask before the workers have subscribed.
	for _, nc := range []*nats.Conn{a.nc(), b.nc()} {
		if err := nc.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	w := watcher(t, WatcherConfig{Config: Config{URL: s.URL()}})
	w.next(t, "a=card of a", "b=card of b")
	second := watcher(t, WatcherConfig{Config: Config{URL: s.URL()}})
	second.next(t, "a=card of a", "b=card of b")
	if err := errors.Join(a.Close(), a.Close()); err != nil {
		t.Fatal(err)
	}
	w.next(t, "a gone")
	second.next(t, "a gone")
	announcer(t, s.URL(), "a", "another card", time.Hour)
	w.next(t, "a=another card")
	settled(t, w.Metrics, func(m WatcherMetrics) bool {
		return !(m.Names != 2 || m.Lost+m.Malformed+m.TooMany+m.Dropped > 0)
	})
	if err := errors.Join(w.Close(), w.Close()); err != nil {
		t.Fatal(err)
	}
	if _, ok := <-w.Changes(); ok {
		t.Error("told something behind Close")
	}
}

// meanwhile lets time pass for the watcher, which then judges.
func (w *Watcher) meanwhile(passed time.Duration) {
	w.cfg.meanwhile <- func(r *registry) {
		for _, e := range r.names {
			e.last = e.last.Add(-passed)
			if !e.askedAt.IsZero() {
				e.askedAt = e.askedAt.Add(-passed)
			}
		}
	}
}

// doubts reports whether exactly these workers were asked without an answer so far.
func (w *Watcher) doubts(names ...string) bool {
	same := make(chan bool, 1)
	w.cfg.meanwhile <- func(r *registry) {
		n := 0
		for p, e := range r.names {
			if !e.askedAt.IsZero() {
				n++
				if !slices.Contains(names, p.Name) {
					n = len(r.names) + 1
				}
			}
		}
		same <- n == len(names)
	}
	return <-same
}

// until polls for a condition that becomes true soon or never.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

// TestSilence: a worker that died does not answer; a living one whose announcement was
// lost is asked and answers.
func TestSilence(t *testing.T) {
	const grace = 4 * patience
	s := server(t, "127.0.0.1:0")
	w := watcher(t, WatcherConfig{Config: Config{URL: s.URL()}, Grace: grace})
	announcer(t, s.URL(), "alive", "x", time.Hour)
	w.next(t, "alive=x")
	nc := connect(t, s)
	for range 2 {
		if err := nc.Publish("coppice-kv-here.dead", []byte("x")); err != nil {
			t.Fatal(err)
		}
		w.next(t, "dead=x")
		w.meanwhile(grace)
		until(t, "an answer of the one alone", func() bool { return w.doubts("dead") })
		w.meanwhile(grace / 4)
		w.next(t, "dead gone")
	}
	settled(t, w.Metrics, func(m WatcherMetrics) bool { return m.Lost == 2 && m.Names == 1 })
}

// TestRegistrationServerRestart: the server is down for longer than Grace. No worker
// counts as gone for that; one that died meanwhile does after another Grace.
func TestRegistrationServerRestart(t *testing.T) {
	const grace = 4 * patience
	s := server(t, "127.0.0.1:0")
	at, err := url.Parse(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	w := watcher(t, WatcherConfig{Config: Config{URL: s.URL()}, Grace: grace})
	announcer(t, s.URL(), "a", "x", time.Hour) // it announces itself only when asked or connected
	dead := announcer(t, s.URL(), "dead", "x", time.Hour)
	w.next(t, "a=x", "dead=x")
	s.Close()
	until(t, "an outage", func() bool { return !w.nc().IsConnected() })
	for range 3 {
		before := w.Metrics().Outages
		w.meanwhile(2 * grace)
		until(t, "all are pardoned", func() bool { return w.Metrics().Outages > before })
		select {
		case c := <-w.Changes():
			t.Fatalf("%v was told without a server", c)
		default:
		}
	}
	_ = dead.Close() // there is no server for its goodbye
	s = server(t, at.Host)
	announcer(t, s.URL(), "b", "x", time.Hour)
	w.next(t, "b=x")
	until(t, "answers of the two", func() bool {
		if w.doubts() { // the new connection renewed all deadlines
			w.meanwhile(grace)
		}
		return w.doubts("dead")
	})
	w.meanwhile(grace / 4)
	w.next(t, "dead gone")
	settled(t, w.Metrics, func(m WatcherMetrics) bool { return !(m.Names != 2 || m.Lost != 1) })
}

// TestRegistrationBeforeServer: worker and watcher start before the server.
func TestRegistrationBeforeServer(t *testing.T) {
	s := server(t, "127.0.0.1:0")
	at, err := url.Parse(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	w := watcher(t, WatcherConfig{Config: Config{URL: at.String()}})
	announcer(t, at.String(), "a", "x", time.Hour)
	server(t, at.Host)
	w.next(t, "a=x")
}

// TestHostileAnnouncements: hostile peers are counted, and cost no more than the limits allow.
func TestHostileAnnouncements(t *testing.T) {
	s := server(t, "127.0.0.1:0")
	w := watcher(t, WatcherConfig{Config: Config{URL: s.URL()}, MaxNames: 8, MaxPayload: 100})
	nc := connect(t, s)
	say := func(name string, h nats.Header, payload string) {
		t.Helper()
		if err := nc.PublishMsg(&nats.Msg{Subject: "coppice-kv-here." + name, Header: h, Data: []byte(payload)}); err != nil {
			t.Fatal(err)
		}
	}
	a := announcer(t, s.URL(), "a", "x", time.Hour)
	w.next(t, "a=x")
	say("ä", nil, "x")
	say("long", nil, strings.Repeat("x", 101))
	say("epoch", nats.Header{headEpoch: {"-1"}}, "x")
	say("a", nats.Header{headEpoch: {"1"}}, "an impostor of the past")
	say("a", nats.Header{headEpoch: {"1"}}, "") // a goodbye of its own
	for i := range 100 {
		say(fmt.Sprint("crowd", i), nil, "x")
	}
	var m WatcherMetrics
	for m = w.Metrics(); m.TooMany < 93; m = w.Metrics() {
		if t.Context().Err() != nil {
			t.Fatal(m)
		}
		runtime.Gosched()
	}
	if m.Names != 8 || m.Malformed != 3 || m.Goodbyes != 1 || m.Lost > 0 {
		t.Errorf("%v", m)
	}
	// A peer that asks continuously is answered, but not each time.
	for range 10_000 {
		if err := nc.Publish("coppice-kv-who", nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	_ = a.Close()
	for c := range w.Changes() {
		if c.Name == "a" {
			if !c.Gone() {
				t.Errorf("%v", c)
			}
			break
		}
	}
	if m := w.Metrics(); m.Heard > 5000 {
		t.Errorf("%d announcements were heard: one for each question", m.Heard)
	}
}

func TestRegistrationConfig(t *testing.T) {
	for want, cfg := range map[string]AnnouncerConfig{
		"Worker":       {Payload: []byte("x")},
		"one token":    {Config: Config{Worker: "a.b"}, Payload: []byte("x")},
		"Payload has ": {Config: Config{Worker: "a"}},
		"65537 bytes":  {Config: Config{Worker: "a"}, Payload: make([]byte, MaxPayload+1)},
		"Interval is ": {Config: Config{Worker: "a"}, Payload: []byte("x"), Interval: time.Microsecond},
	} {
		if a, err := NewAnnouncer(cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, %v, want %q", a, err, want)
		}
	}
	for want, cfg := range map[string]WatcherConfig{
		"Prefix": {Config: Config{Prefix: "a b"}}, "Grace": {Grace: -1}, "MaxNames": {MaxNames: -1}, "MaxPayload": {MaxPayload: -1},
		"QueueMessages": {QueueMessages: -1}, "QueueBytes": {QueueBytes: -1},
	} {
		if w, err := NewWatcher(cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, %v, want %q", w, err, want)
		}
	}
}
