package gateway

import (
	"context"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/coppice-llm/coppice/events/card"
	"github.com/coppice-llm/coppice/gateway/internal/dispatch"
	"github.com/coppice-llm/coppice/gateway/internal/members"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/router"
)

// TestFrozenAndGone: requests at a worker that was removed from the list, as after its machine
// failed, end too; a living one finishes its requests.
func TestFrozenAndGone(t *testing.T) {
	a, b := newWorker(t, "a", true, nil), newWorker(t, "b", true, nil)
	s := newStand(t, Config{}, a, b)
	s.ready(2)
	a.holds(run(0, 4000))
	s.until("the events", func() bool { return s.worker("a").Ranks[0].HeldBlocks == 1000 })
	goOn := make(chan struct{})
	a.does(func(rw http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		select {
		case <-goOn:
			io.WriteString(rw, "{}")
		case <-r.Context().Done():
		}
	})
	ask := func() <-chan reply {
		before, done := a.requests(), make(chan reply, 1)
		go func() { done <- s.ask(t.Context(), run(0, 4000), `,"stream":true,"max_tokens":2`) }()
		s.until("a is asked", func() bool { return a.requests() == before+1 })
		return done
	}
	m := s.members.All()[0]
	if m.Status().URL != a.http.URL {
		m = s.members.All()[1]
	}
	ends, waits := ask(), ask()
	if err := s.SetWorkers([]members.WorkerConfig{{URL: b.http.URL}}); err != nil {
		t.Fatal(err)
	}
	silent := func() { s.heard(m, 0) } // as if nothing had arrived for long
	silent()
	a.does(nil)
	goOn <- struct{}{} // either of the two
	r := reply{}
	select {
	case r = <-ends:
		ends = waits
	case r = <-waits:
	}
	if r.StatusCode != 200 || r.worker() != "a" {
		t.Errorf("of a living one: %s from %q", r.Status, r.worker())
	}
	a.sick.Store(true)
	s.until("it is lost", func() bool { return m.Status().State == members.Lost })
	s.patience(0)
	select {
	case r = <-ends:
		if r.StatusCode != 200 || r.worker() != "b" || !strings.HasSuffix(r.text, "[DONE]\n\n") {
			t.Errorf("of one that is gone: %s from %q: %s", r.Status, r.worker(), r.text)
		}
	case <-time.After(long):
		t.Error("the request waits for a worker that is gone")
		close(goOn)
	}
	s.idle()
}

// TestTakenBackWhileAnswered: a request that is taken back just as its worker answers ends once there.
// The worker's other requests still count as running there, also after it has left.
func TestTakenBackWhileAnswered(t *testing.T) {
	a, b := newWorker(t, "a", true, nil), newWorker(t, "b", true, nil)
	s := newStand(t, Config{}, a, b)
	s.ready(2)
	a.holds(run(0, 4000))
	s.until("the events", func() bool { return s.worker("a").Ranks[0].HeldBlocks == 1000 })
	m := s.members.Summary().ByID[kv.WorkerID(a.card.ID())]
	asked := make(chan struct{})
	a.does(func(rw http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		close(asked)
		<-r.Context().Done()
	})
	done := make(chan reply, 1)
	go func() { done <- s.ask(t.Context(), run(0, 4000), `,"stream":true,"max_tokens":2`) }()
	<-asked
	s.attempts.mu.Lock()
	others := maps.Clone(s.attempts.at[m])
	s.attempts.mu.Unlock()
	a.does(func(rw http.ResponseWriter, r *http.Request) {
		s.attempts.mu.Lock()
		defer s.attempts.mu.Unlock()
		for at := range s.attempts.at[m] {
			if _, other := others[at]; !other && !at.phase.CompareAndSwap(waits, moved) {
				t.Error("it can't be taken back")
			}
		}
		io.WriteString(rw, "{}")
	})
	if r := s.ask(t.Context(), run(0, 4000), `,"max_tokens":2`); r.StatusCode != 200 || r.worker() != "b" {
		t.Errorf("of one that was taken back: %s from %q: %s", r.Status, r.worker(), r.text)
	}
	if err := s.SetWorkers([]members.WorkerConfig{{URL: b.http.URL}}); err != nil {
		t.Fatal(err)
	}
	s.heard(m, 0) // as if nothing had arrived for long
	a.sick.Store(true)
	s.patience(0)
	select {
	case r := <-done:
		if r.StatusCode != 200 || r.worker() != "b" {
			t.Errorf("of one that is gone: %s from %q: %s", r.Status, r.worker(), r.text)
		}
	case <-time.After(long):
		t.Error("the request waits for a worker that is gone")
		a.http.CloseClientConnections()
	}
	s.idle()
}

// meanwhile is a context that calls a function when it is first waited for.
type meanwhile struct {
	context.Context
	what func()
}

func (m *meanwhile) Done() <-chan struct{} {
	if what := m.what; what != nil {
		m.what = nil
		what()
	}
	return m.Context.Done()
}

// TestLeavesWhenChosen: a worker that leaves between being chosen and being asked does not make
// a request fail that another worker can take.
func TestLeavesWhenChosen(t *testing.T) {
	one := func(c *card.Card) { c.MaxRunning = 1 }
	a, b := newWorker(t, "a", false, one), newWorker(t, "b", false, one)
	s := newStand(t, Config{}, a, b)
	s.ready(2)
	p := s.newRequest(nil, &http.Request{URL: &url.URL{}}, true)
	req := &p.buffer.ask.Request
	req.PromptTokens = 1
	var busy []router.Decision
	for range 2 {
		d, err := s.dispatch.Choose(t.Context(), &dispatch.Ask{Request: router.Request{PromptTokens: 1}}, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		busy = append(busy, d)
	}
	if busy[0].Worker.Worker != kv.WorkerID(card.IDOf("a")) {
		busy[0], busy[1] = busy[1], busy[0]
	}
	err := p.choose(&meanwhile{t.Context(), func() {
		s.dispatch.Release(busy[0].Reservation) // now a is chosen
		if err := s.SetWorkers([]members.WorkerConfig{{URL: b.http.URL}}); err != nil {
			t.Error(err)
		}
		s.dispatch.Release(busy[1].Reservation)
	}})
	if err != nil {
		t.Fatal(err)
	}
	if name := p.member.Name(); name != "b" {
		t.Errorf("%s is asked", name)
	}
	s.dispatch.Release(p.decision.Reservation)
	s.attempts.end(p.member, p.attempt)
	p.close()
	s.idle()
}

// TestFiguresOfANameStay: a late end of a request at a worker that left, or that no longer has
// the name, does not remove the metrics of the name's new owner.
func TestFiguresOfANameStay(t *testing.T) {
	a, other := newWorker(t, "a", false, nil), newWorker(t, "b", false, nil)
	s := newStand(t, Config{}, a)
	s.ready(1)
	counted := func() (n float64) {
		families, err := s.cfg.Registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			for _, m := range f.Metric {
				if f.GetName() == "coppice_router_requests_total" && m.Label[1].GetValue() == "a" {
					n += m.GetCounter().GetValue()
				}
			}
		}
		return n
	}
	asked, goOn := make(chan struct{}), make(chan struct{})
	a.does(func(rw http.ResponseWriter, r *http.Request) {
		close(asked)
		<-goOn
		a.complete(rw, r)
	})
	done := make(chan reply, 1)
	go func() { done <- s.ask(t.Context(), run(0, 8), ``) }()
	<-asked
	a.does(nil)
	if err := s.SetWorkers([]members.WorkerConfig{{URL: a.http.URL, MaxRunning: 9}}); err != nil {
		t.Fatal(err)
	}
	s.ready(1)
	for range 3 {
		s.ask(t.Context(), run(0, 8), ``)
	}
	s.until("three are counted", func() bool { return counted() == 3 })
	close(goOn)
	<-done
	s.until("the late one is over", func() bool {
		return s.open.Count() == 0
	})
	if n := counted(); n != 4 {
		t.Errorf("%v are counted, want all 4", n)
	}
	// a restarts as b, a name already in use; a third worker starts as a.
	third := newWorker(t, "a", false, func(c *card.Card) { c.Epoch = 3 })
	if err := s.SetWorkers([]members.WorkerConfig{{URL: a.http.URL, MaxRunning: 9}, {URL: other.http.URL}}); err != nil {
		t.Fatal(err)
	}
	s.ready(2)
	a.mu.Lock()
	a.card.Name, a.card.Epoch = "b", 2
	a.mu.Unlock()
	s.until("two b are one too many", func() bool { return s.at(a).State == "refused" })
	if err := s.SetWorkers([]members.WorkerConfig{{URL: a.http.URL, MaxRunning: 9}, {URL: other.http.URL}, {URL: third.http.URL}}); err != nil {
		t.Fatal(err)
	}
	s.ready(2)
	s.until("the new a counts", func() bool { s.ask(t.Context(), run(0, 8), ``); return counted() > 0 })
	cards := func() int { a.mu.Lock(); defer a.mu.Unlock(); return a.cards }
	n := cards()
	s.until("the second b is asked again", func() bool { return cards() > n+2 })
	if counted() == 0 {
		t.Error("the figures of a are gone")
	}
}

// TestRanksWithoutRoom: a worker is refused until there is room for all its ranks; it never gets
// requests for only some of them.
func TestRanksWithoutRoom(t *testing.T) {
	a, b := newWorker(t, "a", false, nil), newWorker(t, "b", false, nil)
	s := newStand(t, Config{Router: router.Config{MaxWorkers: 3}}, a)
	s.ready(1)
	list := []members.WorkerConfig{{URL: a.http.URL}, {URL: b.http.URL, Ranks: 3}}
	if err := s.SetWorkers(list); err != nil {
		t.Fatal(err)
	}
	cards := func() int { b.mu.Lock(); defer b.mu.Unlock(); return b.cards }
	s.until("it has been asked often", func() bool { return cards() > 5 || s.at(b).State == "healthy" })
	if w := s.at(b); w.State != "refused" {
		t.Errorf("it is %s with %d ranks", w.State, len(w.Ranks))
	}
	for _, l := range s.dispatch.Loads() {
		if l.Worker.Worker == kv.WorkerID(card.IDOf("b")) && l.Health != router.Lost {
			t.Errorf("%v is %v", l.Worker, l.Health)
		}
	}
	if err := s.SetWorkers(list[1:]); err != nil {
		t.Fatal(err)
	}
	s.until("all of it", func() bool { w := s.at(b); return w.State == "healthy" && len(w.Ranks) == 3 })
}
