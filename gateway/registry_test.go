package gateway

import (
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/coppice-llm/coppice/events/card"
	"github.com/coppice-llm/coppice/events/nats"
	"github.com/coppice-llm/coppice/events/nats/embedded"
	"github.com/coppice-llm/coppice/router"
)

// TestNATSTrouble: a NATS that refuses the password is in the log, for each that needs it.
func TestNATSTrouble(t *testing.T) {
	s, err := embedded.Start(embedded.Config{Addr: "127.0.0.1:0", Dir: t.TempDir(), User: "me", Password: "hush"})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	core, logged := observer.New(zapcore.WarnLevel)
	at := nats.Config{URL: strings.Replace(s.URL(), "//", "//me:wrong@", 1), Retry: time.Millisecond}
	g, err := New(Config{NATS: &at, Replicas: &Replicas{NATS: at}, Log: zap.New(core)})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	told := func(what string) bool {
		for _, e := range logged.FilterMessageSnippet("NATS does not answer").All() {
			if m := e.ContextMap(); m["for"] == what && strings.Contains(m["error"].(string), "Authorization") {
				return true
			}
		}
		return false
	}
	for end := time.Now().Add(time.Minute); !told("events and registration") || !told("replicas"); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("logged is %v", logged.All())
		}
	}
}

// given tells whether the worker at a URL was given, and whether there is one.
func (s *stand) given(url string) (given, there bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.members[url]
	return m != nil && !m.announced, m != nil
}

// TestGivenAndRegistered: a worker that is given and registers, in either order, is there for
// as long as it is one of both.
func TestGivenAndRegistered(t *testing.T) {
	a := newWorker(t, "a", false, nil)
	a.card.URL = a.http.URL
	s := newStand(t, Config{})
	list := []Worker{{URL: a.http.URL}}
	set := func(all []Worker) {
		t.Helper()
		if err := s.SetWorkers(all); err != nil {
			t.Fatal(err)
		}
	}
	announce := func() {
		t.Helper()
		if err := s.Announce(&a.card); err != nil {
			t.Fatal(err)
		}
	}
	is := func(what string, given, there bool) {
		t.Helper()
		if g, ok := s.given(a.http.URL); g != given || ok != there {
			t.Fatalf("%s: given %v, there %v", what, g, ok)
		}
		if there {
			s.ready(1)
		}
	}
	set(list)
	is("given", true, true)
	announce()
	is("registered, too", true, true)
	set(nil)
	is("registered alone", false, true)
	set(list)
	is("given, too", true, true)
	s.Gone("a", 0)
	is("given alone", true, true)
	set(nil)
	is("neither", false, false)
	announce()
	set(list)
	set(nil)
	is("registered again", false, true)
	s.Gone("a", 0)
	is("gone", false, false)
}

// TestGivenWhileRegistering: a worker that registers at the moment when the list says more of
// it is as the list says.
func TestGivenWhileRegistering(t *testing.T) {
	a := newWorker(t, "a", false, nil)
	a.card.URL = a.http.URL
	s := newStand(t, Config{}, a)
	s.ready(1)
	old := s.all()[0]
	set := make(chan error)
	s.chooser.mu.Lock() // nobody leaves
	go func() { set <- s.SetWorkers([]Worker{{URL: a.http.URL, Name: "b"}}) }()
	for end := time.Now().Add(long); ; time.Sleep(time.Millisecond) {
		s.mu.Lock()
		taken := s.members[a.http.URL] != old
		s.mu.Unlock()
		if taken || time.Now().After(end) {
			break
		}
	}
	if err := s.Announce(&a.card); err != nil {
		t.Error(err)
	}
	s.chooser.mu.Unlock()
	if err := <-set; err != nil {
		t.Fatal(err)
	}
	s.until("it has its name", func() bool { return s.worker("b").State == "healthy" })
}

// TestRoomByTheList: who registered when there was no room comes in when the list has less, too.
func TestRoomByTheList(t *testing.T) {
	a, b := newWorker(t, "a", false, nil), newWorker(t, "b", false, nil)
	b.card.URL = b.http.URL
	s := newStand(t, Config{Router: router.Config{MaxWorkers: 1}}, a)
	s.ready(1)
	changes, ended := make(chan nats.Change), make(chan struct{})
	go func() {
		defer close(ended)
		s.watch(changes)
	}()
	defer func() { close(changes); <-ended }()
	changes <- nats.Change{Process: nats.Process{Name: "b"}, Payload: b.card.Append(nil)}
	changes <- nats.Change{Process: nats.Process{Name: "c"}, Payload: (&card.Card{Name: "c"}).Append(nil)} // b has been looked at
	if err := s.SetWorkers(nil); err != nil {
		t.Fatal(err)
	}
	s.until("b", func() bool { return s.worker("b").State == "healthy" })
}
