package members

import (
	"errors"
	"net/http"
	"slices"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/coppice-llm/coppice/events"
	"github.com/coppice-llm/coppice/events/card"
	"github.com/coppice-llm/coppice/events/nats"
)

// nowhere is a transport that reaches no worker.
type nowhere struct{}

func (nowhere) RoundTrip(*http.Request) (*http.Response, error) { return nil, errors.New("nowhere") }

// idle is a router that is only told of summaries.
type idle struct{ Router }

func (idle) Regroup(*Summary, time.Time) {}

// newFleet returns a fleet with room for one worker.
func newFleet(t *testing.T) *Fleet {
	t.Helper()
	f, err := New(Config{
		BlockTokens: 4, MaxWorkers: 1, Sink: struct{ events.Sink }{}, Router: idle{}, Transport: nowhere{},
		NameUnused: func(string) {}, StillLost: func(*Member, time.Time) {},
		ProbeEvery: time.Hour, ProbeTimeout: time.Hour, Log: zap.NewNop(),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

// change returns the change of a worker that registers or goes.
func change(name string, there bool) nats.Change {
	c := nats.Change{Process: nats.Process{Name: name}}
	if there {
		c.Payload = (&card.Card{Name: name, URL: "http://" + name}).Append(nil)
	}
	return c
}

func (f *Fleet) urls() (all []string) {
	for _, m := range f.All() {
		all = append(all, m.Status().URL)
	}
	return all
}

// TestNoRoom: a worker that registers when the fleet is full is admitted when another one goes.
func TestNoRoom(t *testing.T) {
	f, full := newFleet(t), map[nats.Process]*card.Card{}
	for _, name := range []string{"a", "b", "c", "d"} {
		f.register(change(name, true), full)
	}
	f.register(change("c", false), full) // it went while it waited
	for _, name := range []string{"a", "b", "d"} {
		if got := f.urls(); !slices.Equal(got, []string{"http://" + name}) {
			t.Errorf("there are %v, want %s", got, name)
		}
		f.register(change(name, false), full)
	}
	if got := f.urls(); len(got) != 0 || len(full) != 0 {
		t.Errorf("%v are left, %d wait", got, len(full))
	}
}

// TestRoomByTheList: it is also admitted when SetWorkers shortens the list.
func TestRoomByTheList(t *testing.T) {
	f := newFleet(t)
	if err := f.SetWorkers([]WorkerConfig{{URL: "http://a"}}); err != nil {
		t.Fatal(err)
	}
	changes, ended := make(chan nats.Change), make(chan struct{})
	go func() {
		defer close(ended)
		f.watch(changes)
	}()
	defer func() { close(changes); <-ended }()
	changes <- change("b", true)
	// b has been handled.
	changes <- nats.Change{Process: nats.Process{Name: "c"}, Payload: (&card.Card{Name: "c"}).Append(nil)}
	if err := f.SetWorkers(nil); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); !slices.Equal(f.urls(), []string{"http://b"}); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("there are %v", f.urls())
		}
	}
}

// TestGivenAndRegistered: a worker that is both configured and registered, in either order,
// stays while at least one of the two holds.
func TestGivenAndRegistered(t *testing.T) {
	c, f := &card.Card{Name: "a", URL: "http://a"}, newFleet(t)
	list := []WorkerConfig{{URL: c.URL}}
	set := func(all []WorkerConfig) {
		t.Helper()
		if err := f.SetWorkers(all); err != nil {
			t.Fatal(err)
		}
	}
	announce := func() {
		t.Helper()
		if err := f.Announce(c); err != nil {
			t.Fatal(err)
		}
	}
	is := func(what string, given, there bool) {
		t.Helper()
		f.mu.Lock()
		defer f.mu.Unlock()
		if m := f.members[c.URL]; (m != nil) != there || there && m.registered.onlyRegistered == given {
			t.Fatalf("%s: want given %v, there %v", what, given, there)
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
	f.Gone("a", 0)
	is("given alone", true, true)
	set(nil)
	is("neither", false, false)
	announce()
	set(list)
	set(nil)
	is("registered again", false, true)
	f.Gone("a", 0)
	is("gone", false, false)
}
