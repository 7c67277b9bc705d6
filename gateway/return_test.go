package gateway

import (
	"testing"
	"time"

	"github.com/coppice-llm/coppice/gateway/internal/members"
)

// TestAllLostForAMoment: while all workers are lost, a request waits for one that has been lost only just now, within the patience and
// QueueTimeout; then it ends.
func TestAllLostForAMoment(t *testing.T) {
	a, b := newWorker(t, "a", false, nil), newWorker(t, "b", false, nil)
	s := newStand(t, Config{QueueTimeout: time.Hour}, a, b)
	lose := func() {
		s.ready(2)
		for _, w := range []*worker{a, b} {
			w.sick.Store(true)
		}
		s.until("both are lost", func() bool { return s.members.Summary().Ready == 0 })
	}
	s.patience(time.Hour)
	lose()
	before := time.Now()
	done := make(chan reply, 1)
	go func() { done <- s.ask(t.Context(), run(0, 40), `,"max_tokens":2`) }()
	select {
	case r := <-done:
		t.Fatalf("%s after %v: %s", r.Status, time.Since(before), r.text)
	case <-time.After(3 * returnPoll): // whether it waits; a slow machine makes the test weaker, not wrong
	}
	b.sick.Store(false)
	if r := <-done; r.StatusCode != 200 || r.worker() != "b" {
		t.Errorf("%s by %q: %s", r.Status, r.worker(), r.text)
	}
	a.sick.Store(false)
	lose()
	s.patience(0)
	if r := s.ask(t.Context(), run(0, 40), `,"max_tokens":2`); r.StatusCode != 503 {
		t.Errorf("after the patience: %s: %s", r.Status, r.text)
	}
	s.idle()
}

// TestFailedWhileOthersAreLost: a request whose worker fails while all others are lost goes to one of these when it is back.
func TestFailedWhileOthersAreLost(t *testing.T) {
	a, b := newWorker(t, "a", false, nil), newWorker(t, "b", false, nil)
	s := newStand(t, Config{QueueTimeout: time.Hour, Retries: 5}, a, b)
	s.patience(time.Hour)
	s.ready(2)
	b.sick.Store(true)
	s.until("b is lost", func() bool { return s.at(b).State == members.Lost.String() })
	a.close()
	done := make(chan reply, 1)
	go func() { done <- s.ask(t.Context(), run(0, 40), `,"max_tokens":2`) }()
	s.until("a is lost", func() bool { return s.at(a).State == members.Lost.String() })
	b.sick.Store(false)
	if r := <-done; r.StatusCode != 200 || r.worker() != "b" {
		t.Errorf("%s by %q: %s", r.Status, r.worker(), r.text)
	}
	s.idle()
}
