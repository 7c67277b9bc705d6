package gateway

import (
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/coppice-llm/coppice/events"
	"github.com/coppice-llm/coppice/events/card"
	"github.com/coppice-llm/coppice/events/eventstest"
	"github.com/coppice-llm/coppice/events/nats"
	"github.com/coppice-llm/coppice/internal/natstest"
)

// overNATS starts a worker whose events go over NATS.
func overNATS(t *testing.T, name, url string) *worker {
	t.Helper()
	w := newWorker(t, name, false, nil)
	w.publishOverNATS(url)
	return w
}

// publishOverNATS starts the publisher of a new process of the worker.
func (w *worker) publishOverNATS(url string) {
	w.t.Helper()
	sender := nats.NewSender(nats.Config{URL: url, Worker: w.name, Retry: time.Millisecond})
	var err error
	if w.pub, err = eventstest.NewPublisher(events.PublisherConfig{Heartbeat: 50 * time.Millisecond}, sender); err != nil {
		w.t.Fatal(err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.card.NATS, w.card.Epoch = &card.NATS{}, w.pub.Epoch()
}

// outage is a gateway of two workers, with ten blocks of run(0, 40) at a and of run(1000, 40) at b,
// whose NATS has gone away.
func outage(t *testing.T, cfg Config) (s *stand, a, b *worker, broker *natstest.Server) {
	t.Helper()
	broker = natsServer(t, "127.0.0.1:0")
	a, b = overNATS(t, "a", broker.URL()), overNATS(t, "b", broker.URL())
	cfg.NATS = &nats.Config{URL: broker.URL(), Retry: time.Millisecond}
	cfg.EventSilence, cfg.Registry = 200*time.Millisecond, prometheus.NewRegistry()
	s = newStand(t, cfg, a, b)
	s.ready(2)
	a.holds(run(0, 40))
	b.holds(run(1000, 40))
	s.until("the events", func() bool { return s.held("a") == 10 && s.held("b") == 10 })
	broker.Close()
	s.until("the outage is noticed", func() bool { return s.worker("a").Mode != "events" && s.worker("b").Mode != "events" })
	return s, a, b, broker
}

func (s *stand) held(name string) int {
	if w := s.worker(name); len(w.Ranks) == 1 {
		return w.Ranks[0].HeldBlocks
	}
	return -1
}

// back starts a NATS server at the address of one that is closed.
func (s *stand) back(broker *natstest.Server) {
	s.t.Helper()
	natsServer(s.t, broker.URL()[len("nats://"):])
}

// TestOutageKeepsIndex: while NATS is away and the workers are healthy, requests go to the workers that
// hold their prefixes. The usage in an answer takes back what a worker has evicted meanwhile. When
// NATS is back, the events that were missed are applied.
func TestOutageKeepsIndex(t *testing.T) {
	s, a, b, broker := outage(t, Config{})
	if s.held("a") != 10 || s.held("b") != 10 || s.worker("a").Mode != "outdated" || s.worker("b").Mode != "outdated" {
		t.Fatalf("after the outage: %+v", s.Fleet().Workers)
	}
	for range 3 {
		for i, want := range []string{"a", "b"} {
			if r := s.ask(t.Context(), run(i*1000, 44), `,"max_tokens":1`); r.worker() != want {
				t.Errorf("%s from %q, want from %s", r.Status, r.worker(), want)
			}
		}
	}
	a.does(func(rw http.ResponseWriter, r *http.Request) { // it has evicted six of the ten blocks
		fmt.Fprint(rw, `{"usage":{"prompt_tokens_details":{"cached_tokens":16}}}`)
		io.WriteString(rw, "\n")
	})
	if r := s.ask(t.Context(), run(0, 44), `,"max_tokens":1`); r.worker() != "a" {
		t.Errorf("%s from %q", r.Status, r.worker())
	}
	s.until("the index is corrected", func() bool { return s.held("a") == 4 })
	b.holds(run(2000, 20)) // while NATS is away
	s.back(broker)
	s.until("the missed events", func() bool {
		return s.worker("a").Mode == "events" && s.worker("b").Mode == "events" && s.held("b") == 15
	})
	s.idle()
}

// TestOutageEndsByTime: outdated contents count for EventOutlast, and no longer.
func TestOutageEndsByTime(t *testing.T) {
	s, _, _, _ := outage(t, Config{EventOutlast: 100 * time.Millisecond})
	s.until("nothing is known", func() bool {
		return s.held("a") == 0 && s.held("b") == 0 && s.worker("a").Mode == "waiting" && s.worker("b").Mode == "waiting"
	})
	if a, b := s.worker("a").State, s.worker("b").State; a != "healthy" || b != "healthy" {
		t.Errorf("the workers are %s and %s", a, b)
	}
}

// TestOutageEndsByRestart: a worker that has restarted while NATS is away has an empty cache; its card
// says so.
func TestOutageEndsByRestart(t *testing.T) {
	s, a, _, broker := outage(t, Config{})
	if err := a.pub.Close(); err != nil {
		t.Fatal(err)
	}
	a.publishOverNATS(broker.URL())
	s.until("the restart is noticed", func() bool { return s.held("a") == 0 && s.held("b") == 10 })
	if mode := s.worker("b").Mode; mode != "outdated" {
		t.Errorf("the other worker is %s", mode)
	}
	s.back(broker)
	s.until("its events", func() bool { return s.worker("a").Mode == "events" && s.worker("b").Mode == "events" })
	if s.held("a") != 0 || s.held("b") != 10 {
		t.Errorf("%+v", s.Fleet().Workers)
	}
}
