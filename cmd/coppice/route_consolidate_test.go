package main

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice/events"
	"github.com/coppice-llm/coppice/events/eventstest"
	"github.com/coppice-llm/coppice/events/zmq"
	"github.com/coppice-llm/coppice/gateway"
	"github.com/coppice-llm/coppice/kv"
)

// socketsAt makes a publisher at a free port, like an engine or an offloading server.
func socketsAt(t *testing.T) (p *eventstest.Publisher, flag string) {
	t.Helper()
	sender := zmq.NewSender(zmq.SenderConfig{Endpoint: "tcp://127.0.0.1:0", ReplayEndpoint: "tcp://127.0.0.1:0", Bind: true})
	p, err := eventstest.NewPublisher(events.PublisherConfig{}, sender)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p, fmt.Sprintf("zmq://*:%d?replay=%d", sender.Addr().(*net.TCPAddr).Port, sender.ReplayAddr().(*net.TCPAddr).Port)
}

// TestRouteConsolidates checks that the blocks of a worker's engine and those of its
// offloading server, which use different hashes, count as one cache.
func TestRouteConsolidates(t *testing.T) {
	t.Parallel()
	worker := newOtherMake(t)
	engine, at := socketsAt(t)
	offload, beside := socketsAt(t)
	p := startCoppice(t, "router", "route", "--addr", "127.0.0.1:0", "--worker", worker.URL, "--events", at, "--consolidate", beside)
	held := func(want int) {
		t.Helper()
		until(t, "the fleet", func() string {
			var s gateway.FleetStatus
			p.document("/v1/fleet", &s)
			if len(s.Workers) != 1 || len(s.Workers[0].Ranks) != 1 || s.Workers[0].Ranks[0].HeldBlocks != want {
				return fmt.Sprintf("%+v, want %d blocks", s.Workers, want)
			}
			return ""
		})
	}
	stored := kv.Event{Kind: kv.Stored}
	hasher := kv.NewHasher(kv.Namespace{}, 16)
	for n := range kv.Token(3) {
		b := kv.Block{Tokens: slices.Repeat([]kv.Token{n}, 16)}
		b.Hash, b.Local = hasher.Next(b.Tokens)
		stored.Blocks = append(stored.Blocks, b)
	}
	lower := stored
	lower.Tier, lower.Blocks = kv.TierHost, slices.Clone(stored.Blocks)
	for i := range lower.Blocks {
		lower.Blocks[i].Hash ^= 77
	}
	removed := func(tier kv.Tier, b kv.Block) []kv.Event {
		return []kv.Event{{Kind: kv.Removed, Tier: tier, Hashes: []kv.BlockHash{b.Hash}}}
	}
	engine.Publish([]kv.Event{{Kind: kv.Stored, Blocks: stored.Blocks[:2]}})
	held(2)
	offload.Publish([]kv.Event{lower})
	held(3)
	engine.Publish([]kv.Event{{Kind: kv.Cleared}})
	offload.Publish(removed(kv.TierHost, lower.Blocks[2]))
	held(2)
	offload.Publish(removed(kv.TierHost, lower.Blocks[1]))
	held(1)
	offload.Publish([]kv.Event{{Kind: kv.Cleared}})
	held(0)
}

func TestConsolidateFlag(t *testing.T) {
	for _, text := range []string{"zmq://a:5700", "zmq://*:0", "nats://a:1", "5700", "zmq://*:5700?port=1"} {
		c := routeCmd{Consolidate: []string{text}}
		if err := c.consolidate(&gateway.Config{}); err == nil || !strings.Contains(err.Error(), "--consolidate "+text) {
			t.Errorf("%s: %v", text, err)
		}
	}
	c, cfg := routeCmd{Consolidate: []string{"zmq://*:5700,zmq://*:5800?replay=0&topic=T"}}, gateway.Config{}
	if err := c.consolidate(&cfg); err != nil || !slices.Equal(cfg.Consolidate, []gateway.Sockets{{Port: 5700, ReplayPort: 5701}, {Port: 5800, Topic: "T"}}) {
		t.Errorf("%+v, %v", cfg.Consolidate, err)
	}
}
