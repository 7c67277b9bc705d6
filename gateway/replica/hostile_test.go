package replica

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/zeebo/xxh3"

	"github.com/coppice-llm/coppice/events/nats"
	"github.com/coppice-llm/coppice/gateway"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/router"
)

// unreliable drops, duplicates and reorders messages until it is calm.
func unreliable(in <-chan []byte, rng *rand.Rand, calm func() bool) <-chan []byte {
	out := make(chan []byte)
	go func() {
		defer close(out)
		var kept [][]byte
		for m := range in {
			if calm() {
				out <- m
				continue
			}
			kept = append(kept, m)
			if rng.IntN(5) == 0 { // duplicate
				kept = append(kept, m)
			}
			if rng.IntN(5) == 0 { // drop
				kept = kept[:len(kept)-1]
			}
			for len(kept) > 0 && rng.IntN(3) > 0 {
				at := rng.IntN(len(kept))
				out <- kept[at]
				kept = slices.Delete(kept, at, at+1)
			}
		}
	}()
	return out
}

// TestReplicasHostileNetwork: messages are lost, duplicated and reordered; in the end all
// routers agree.
func TestReplicasHostileNetwork(t *testing.T) {
	var calm sync.Map // routers whose messages pass unchanged
	at := natsServer(t, "127.0.0.1:0").URL()
	g := newTogether(t, 3, 4, at, func(i int, c *gateway.Config, talk *Config) {
		c.Router.SessionTTL = time.Hour
		rng := rand.New(rand.NewPCG(1, uint64(i)))
		talk.between = func(in <-chan []byte) <-chan []byte {
			return unreliable(in, rng, func() bool { _, ok := calm.Load(i); return ok })
		}
	})
	rng := rand.New(rand.NewPCG(2, 2))
	var leave []context.CancelFunc
	for i := range 150 {
		if len(leave) > 0 && rng.IntN(2) == 0 {
			at := rng.IntN(len(leave))
			leave[at]()
			leave = slices.Delete(leave, at, at+1)
			continue
		}
		_, end := g.begin(g.stands[rng.IntN(3)], 1000*i, fmt.Sprint("session ", rng.IntN(20)))
		leave = append(leave, end)
	}
	// The routers agree although messages are still lost: snapshots repair it.
	g.same(len(leave))
	sum := Counts{}
	for i, s := range g.stands {
		c := s.counts()
		sum.Gaps += c.Gaps
		sum.TakenSnapshots += c.TakenSnapshots
		if c.Malformed > 0 {
			t.Errorf("%+v", c)
		}
		calm.Store(i, true)
	}
	if sum.Gaps == 0 || sum.TakenSnapshots == 0 {
		t.Errorf("nothing was lost: %+v", sum)
	}
	g.end()
	g.same(0)
	for i := range 20 {
		g.stands[0].until("all agree where sessions are", func() bool {
			at, ok := g.stands[0].session(fmt.Sprint("session ", i))
			for _, s := range g.stands[1:] {
				if other, has := s.session(fmt.Sprint("session ", i)); !ok || !has || other != at {
					return false
				}
			}
			return true
		})
	}
}

// session returns the worker to which the next request of a session would go because of the session.
func (s *stand) session(name string) (at kv.Rank, ok bool) {
	s.d.With(func(r *router.Router, now time.Duration) {
		e, err := r.Explain(now, &router.Request{PromptTokens: 1, Session: max(1, xxh3.HashString("\x00"+name))})
		if err != nil || e.Reason != router.BySession {
			return
		}
		i := slices.IndexFunc(e.Candidates, func(c router.Candidate) bool { return c.Probability == 1 })
		at, ok = e.Candidates[i].Worker, true
	})
	return at, ok
}

// TestReplicasHostileMessages: invalid messages, messages with another block size, and messages
// of too many routers are counted and change nothing.
func TestReplicasHostileMessages(t *testing.T) {
	at := natsServer(t, "127.0.0.1:0").URL()
	g := newTogether(t, 1, 2, at, func(_ int, c *gateway.Config, _ *Config) { c.Router.MaxPeers, c.Router.SessionTTL = 3, time.Hour })
	s := g.stands[0]
	b, err := nats.NewBus(nats.BusConfig{Config: nats.Config{URL: at}, Topic: "routers"})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	<-b.Up()
	say := func(m message) {
		t.Helper()
		if err := b.Send(appendMessage(nil, &m)); err != nil {
			t.Fatal(err)
		}
	}
	own := message{kind: wireHere, replica: s.Replicas.self.id, epoch: 1, blockTokens: blockTokens}
	s.until("it hears", func() bool { say(own); return s.counts().Own > 0 })
	if err := b.Send([]byte("hostile")); err != nil {
		t.Fatal(err)
	}
	s.until("all of that is heard", func() bool { return s.counts().Malformed == 1 })
	base := s.counts().Own
	w := s.d.Loads()[0].Worker
	ev := router.Event{Kind: router.Reserved, ID: 1, Worker: w, PromptTokens: 8, UncachedTokens: 8}
	if err := b.Send([]byte("hostile")); err != nil {
		t.Fatal(err)
	}
	say(message{kind: wireEvents, replica: s.Replicas.self.id, epoch: 1, blockTokens: blockTokens, seq: 1, events: []router.Event{ev}})
	say(message{kind: wireEvents, replica: 1, epoch: 1, blockTokens: 2 * blockTokens, seq: 1, events: []router.Event{ev}})
	former := message{kind: wireEvents, replica: 3, epoch: 1, blockTokens: blockTokens, seq: 1, events: []router.Event{ev}}
	for range 2 {
		if err := b.Send(append([]byte{1}, appendMessage(nil, &former)[1:]...)); err != nil {
			t.Fatal(err)
		}
	}
	say(message{kind: wireGoodbye, replica: 2, epoch: 1, blockTokens: blockTokens})
	say(message{kind: wireEvents, replica: 2, epoch: 1, blockTokens: blockTokens, seq: 1, events: []router.Event{ev}})
	for id := range router.ReplicaID(10) {
		say(message{kind: wireHere, replica: 100 + id, epoch: 5, blockTokens: blockTokens})
	}
	say(message{kind: wireHere, replica: 100, epoch: 4, blockTokens: blockTokens})
	ev.Session, ev.Stamp = 5, uint64(time.Now().Add(2*clockSkew).UnixNano())
	stranger := ev
	stranger.Worker.Worker++
	say(message{kind: wireEvents, replica: 101, epoch: 5, blockTokens: blockTokens, seq: 1, events: []router.Event{stranger, ev}})
	for range 100 { // a router that asks continuously is answered, but not each time
		say(message{kind: wireAsk, replica: 102, epoch: 5, blockTokens: blockTokens})
	}
	s.until("all is counted", func() bool {
		c := s.counts()
		return c.Malformed == 2 && c.Versions == 2 && c.Own == base+1 && c.Foreign == 1 && c.Late == 2 && c.TooMany == 7 && c.ReceivedEvents == 2
	})
	s.until("what was right is taken", func() bool { _, n := s.reserved(); return n == 2 || n == 1 })
	if _, n := s.reserved(); n != 1 {
		t.Errorf("%d reserved", n)
	}
	if c := s.counts(); c.Doubted != 2 || s.claimed() != 0 {
		t.Errorf("a claim of the future is not doubted: %+v", c)
	}
	for _, loud := range []string{"another block size", "another version"} {
		if s.logs.FilterMessageSnippet(loud).Len() != 1 {
			t.Errorf("%s is not logged once", loud)
		}
	}
	if c := s.counts(); c.SentSnapshots > 50 {
		t.Errorf("%d snapshots sent", c.SentSnapshots)
	}
	s.has("coppice_router_replicas 3", "coppice_router_replica_connected 1", `coppice_router_replica_messages_total{what="foreign"} 1`, `coppice_router_replica_events_total{what="rejected"} 1`)
}

// has checks that the metrics contain series.
func (s *stand) has(series ...string) {
	s.t.Helper()
	res, err := http.Get(s.url + "/metrics")
	if err != nil {
		s.t.Fatal(err)
	}
	defer res.Body.Close()
	text, _ := io.ReadAll(res.Body)
	for _, want := range series {
		if !strings.Contains(string(text), want) {
			s.t.Errorf("no %s", want)
		}
	}
}
