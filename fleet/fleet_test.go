package fleet

import (
	"errors"
	"os"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/coppice-llm/coppice"
	"github.com/coppice-llm/coppice/engine/sim"
	"github.com/coppice-llm/coppice/events/nats"
	"github.com/coppice-llm/coppice/internal/leaks"
	"github.com/coppice-llm/coppice/internal/natstest"
	"github.com/coppice-llm/coppice/scheduler"
)

func TestMain(m *testing.M) { os.Exit(leaks.Run(m)) }

func openNode(t *testing.T, events bool) *coppice.Node {
	t.Helper()
	backend, err := sim.Open(sim.Config{Pages: 64, Vocab: 512})
	if err != nil {
		t.Fatal(err)
	}
	node, err := coppice.Open(coppice.Config{Backend: backend, Scheduler: scheduler.Config{Events: events, BlockTokens: 32}})
	if err != nil {
		t.Fatal(err)
	}
	return node
}

// TestJoin: a worker is registered until it leaves, and may be closed before or after its node.
func TestJoin(t *testing.T) {
	defer leaks.Check(t, goleak.IgnoreCurrent())
	broker, err := natstest.Start(natstest.Config{Addr: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	defer broker.Close()
	watcher, err := nats.NewWatcher(nats.WatcherConfig{Config: nats.Config{URL: broker.URL()}})
	if err != nil {
		t.Fatal(err)
	}
	defer watcher.Close()
	for _, name := range []string{"node-first", "worker-first"} {
		node := openNode(t, true)
		w, err := Join(node, Config{Publish: []string{broker.URL(), "zmq://127.0.0.1:0"}, Name: name, URL: "http://127.0.0.1:1/", Models: []string{"m", "n"}, Pool: "fast"})
		if err != nil {
			t.Fatal(err)
		}
		if c := <-watcher.Changes(); c.Name != name || c.Gone() {
			t.Errorf("%v", c)
		}
		c := w.Card()
		if err := c.Validate(); err != nil || c.URL != "http://127.0.0.1:1" || c.Models[1] != "n" || c.Pool != "fast" || c.BlockTokens != 32 || c.MaxRunning == 0 || c.ZMQ.Port == 0 || c.ZMQ.ReplayPort == 0 || c.NATS == nil {
			t.Errorf("%+v, %v", c, err)
		}
		if text := w.String(); !w.Publishes() || strings.Count(text, "\n") != 2 || !strings.Contains(text, "in blocks of 32 tokens") {
			t.Error(text)
		}
		closers := []func() error{node.Close, w.Close}
		if name == "worker-first" {
			closers[0], closers[1] = closers[1], closers[0]
		}
		for _, end := range closers {
			if err := end(); err != nil {
				t.Error(err)
			}
		}
		if c := <-watcher.Changes(); c.Name != name || !c.Gone() {
			t.Errorf("%v", c)
		}
	}
}

// TestJoinPublishesNothing: a worker without destinations only has a card.
func TestJoinPublishesNothing(t *testing.T) {
	node := openNode(t, false)
	defer node.Close()
	w, err := Join(node, Config{URL: "http://host:1", Models: []string{"m"}})
	if err != nil {
		t.Fatal(err)
	}
	if w.Publishes() || w.Card().ZMQ != nil || w.Card().Name == "" || w.Metrics().Batches != 0 {
		t.Errorf("%+v", w.Card())
	}
	w.Leave()
	if err := w.Close(); err != nil {
		t.Error(err)
	}
}

// TestJoinRefuses: all faults are reported at once, one per line, each beginning with coppice:.
func TestJoinRefuses(t *testing.T) {
	node := openNode(t, false)
	defer node.Close()
	_, err := Join(node, Config{Publish: []string{"nats://me:hush@"}, Name: "a.b", Pool: "a b", URL: "host:1"})
	if err == nil || strings.Count(err.Error(), "\n") != 4 || strings.Contains(err.Error(), "hush") {
		t.Fatalf("%v", err)
	}
	for i, line := range strings.Split(err.Error(), "\n") {
		if i > 0 && !strings.HasPrefix(line, "coppice: ") {
			t.Errorf("%q", line)
		}
	}
	if _, err := Join(node, Config{Publish: []string{"zmq://127.0.0.1:0"}, URL: "http://a:1", Models: []string{"m"}}); err == nil || !strings.HasPrefix(err.Error(), "coppice: ") {
		t.Errorf("without events: %v", err)
	}
	if _, err := Join(node, Config{Models: []string{"m"}}); err == nil || errors.Is(err, coppice.ErrInvalid) {
		t.Errorf("nowhere: %v", err)
	}
}
