package gateway

import (
	"fmt"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/coppice-llm/coppice/events/nats"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/router"
)

// claimed is how often another gateway's claim on a session was taken.
func (s *stand) claimed() uint64 {
	m, _, _ := s.chooser.metrics()
	return m.Claims
}

// guessed is how many blocks are guessed to be somewhere.
func (s *stand) guessed() (guesses, predictions int) {
	_, guesses, predictions = s.chooser.metrics()
	return guesses, predictions
}

// TestReplicasShareSessions: a session's requests go to one worker whichever gateway they
// come to, though there is more load on it than elsewhere; one that comes when all is
// idle again knows too. Without a word between them, gateways scatter a session.
func TestReplicasShareSessions(t *testing.T) {
	const sessions = 8
	for _, talk := range []bool{false, true} {
		at := ""
		if talk {
			at = natsServer(t, "127.0.0.1:0").URL()
		}
		keep := func(_ int, c *Config) { c.Router.SessionTTL = time.Hour }
		g := newTogether(t, 3, sessions, at, keep)
		var home [sessions]string
		name := func(i int) string { return fmt.Sprint("session ", i) }
		open := 0
		stays := func(s *stand) (n int) {
			for i := sessions - 1; i >= 0; i-- {
				w, _ := g.begin(s, 1000*(sessions*open+i), name(i))
				if open++; talk {
					g.same(open)
				}
				if w == home[i] {
					n++
				}
			}
			return n
		}
		for i := range home {
			home[i], _ = g.begin(g.stands[0], 1_000_000+1000*i, name(i))
			if open++; talk {
				g.same(open)
			}
		}
		second, third := stays(g.stands[1]), stays(g.stands[2])
		t.Logf("replicas %v: %d and %d of %d sessions stay with their workers", talk, second, third, sessions)
		if talk && (second != sessions || third != sessions) || !talk && (second == sessions || third == sessions) {
			t.Errorf("replicas %v: %d and %d of %d sessions stay with their workers", talk, second, third, sessions)
		}
		g.end()
		for _, s := range g.stands {
			s.idle()
		}
		if !talk {
			continue
		}
		g.stands[2].Close() // whose claims the others tell
		for _, s := range g.stands[:2] {
			s.until("the goodbye", func() bool { return s.counts().Goodbyes == 1 && len(s.chooser.peers()) == 1 })
		}
		cfg := Config{Replicas: &Replicas{NATS: nats.Config{URL: at}, Heartbeat: 50 * time.Millisecond}}
		keep(0, &cfg)
		late := newStand(t, cfg, g.workers...)
		late.ready(sessions)
		late.until("the late one hears of all sessions", func() bool { return late.claimed() == sessions })
		g.stands = []*stand{late}
		for i := range home {
			if r := late.ask(t.Context(), run(77, 64), fmt.Sprintf(`,"stream":true,"user":%q`, name(i))); r.worker() != home[i] {
				t.Errorf("%s: %s, and for who comes late %s %s", name(i), home[i], r.worker(), r.text)
			}
		}
	}
}

// TestSessionsOfTheDead: where the sessions of a gateway are that died, one knows too that
// started while it was still thought to be there.
func TestSessionsOfTheDead(t *testing.T) {
	const sessions = 8
	at := natsServer(t, "127.0.0.1:0").URL()
	keep := func(_ int, c *Config) { c.Router.SessionTTL = time.Hour }
	g := newTogether(t, 2, sessions, at, keep)
	for i := range sessions {
		g.begin(g.stands[1], 1000*i, fmt.Sprint("session ", i))
	}
	g.same(sessions)
	g.end()
	alive, dead := g.stands[0], g.stands[1]
	dead.die(alive)
	cfg := Config{Replicas: &Replicas{NATS: nats.Config{URL: at}, Heartbeat: 50 * time.Millisecond, Silence: long}}
	keep(0, &cfg)
	late := newStand(t, cfg, g.workers...)
	late.ready(sessions)
	late.until("it has asked for all that it wants", func() bool {
		late.replicas.mu.Lock()
		defer late.replicas.mu.Unlock()
		p := late.replicas.peers.all[alive.replicas.self]
		return len(late.chooser.joined) == 0 && p != nil && !p.wanted
	})
	late.mark()
	alive.until("all is answered", func() bool {
		alive.replicas.mu.Lock()
		defer alive.replicas.mu.Unlock()
		return alive.replicas.peers.counts.Malformed == 2 && !alive.replicas.owed
	})
	alive.silent(dead)
	late.until("it hears of all sessions", func() bool { return late.claimed() == sessions })
	for i := range sessions {
		name := fmt.Sprint("session ", i)
		if got, ok := late.session(name); !ok {
			t.Errorf("%s is nowhere", name)
		} else if want, _ := alive.session(name); got != want {
			t.Errorf("%s is at %v, want %v", name, got, want)
		}
	}
}

// TestReplicasShareGuesses: a prompt that one gateway has sent to a worker that tells nothing
// is found there by another one.
func TestReplicasShareGuesses(t *testing.T) {
	const prompts, workers = 12, 4
	for _, talk := range []bool{false, true} {
		change := func(c *Config) { c.ProbeEvery = 300 * time.Millisecond }
		var fleet []*worker
		for i := range workers {
			fleet = append(fleet, newWorker(t, fmt.Sprint("w", i), false, nil))
		}
		at := natsServer(t, "127.0.0.1:0").URL()
		stands := make([]*stand, 2)
		for i := range stands {
			cfg := Config{}
			change(&cfg)
			if talk {
				cfg.Replicas = &Replicas{NATS: nats.Config{URL: at}, Heartbeat: 50 * time.Millisecond}
			}
			stands[i] = newStand(t, cfg, fleet...)
			stands[i].ready(workers)
		}
		a, b := stands[0], stands[1]
		if talk {
			a.until("they know of each other", func() bool { return len(a.Replicas()) == 1 && len(b.Replicas()) == 1 })
		}
		var first [prompts]string
		for i := range prompts {
			first[i] = a.ask(t.Context(), run(10_000*i, 64), "").worker()
			a.idle()
		}
		hits, same := 0, 0
		const blocks = prompts * 64 / blockTokens
		if talk {
			b.until("the other one has learnt it", func() bool {
				guesses, hopes := b.guessed()
				return guesses == blocks && hopes == 0
			})
			b.idle()
		}
		for i := prompts - 1; i >= 0; i-- {
			second := b.ask(t.Context(), run(10_000*i, 64), "")
			b.idle()
			n, err := strconv.Atoi(second.Header.Get(headerOverlap))
			if err != nil {
				t.Fatal(err, second.text)
			}
			hits += n
			if first[i] == second.worker() {
				same++
			}
		}
		t.Logf("replicas %v: %d of %d blocks are found, %d of %d prompts where they were", talk, hits, blocks, same, prompts)
		if talk && (hits != blocks || same != prompts) || !talk && hits != 0 {
			t.Errorf("replicas %v: %d of %d blocks are found, %d of %d prompts where they were", talk, hits, blocks, same, prompts)
		}
	}
}

// TestReplicasSharePredictions: what one gateway has sent somewhere is predicted there by
// another one, until its first token.
func TestReplicasSharePredictions(t *testing.T) {
	a := newWorker(t, "a", true, nil)
	at := natsServer(t, "127.0.0.1:0").URL()
	var stands []*stand
	for range 2 {
		s := newStand(t, Config{ProbeEvery: 300 * time.Millisecond, Replicas: &Replicas{NATS: nats.Config{URL: at}, Heartbeat: 50 * time.Millisecond}}, a)
		s.ready(1)
		stands = append(stands, s)
	}
	one, other := stands[0], stands[1]
	one.until("they know of each other", func() bool { return len(one.Replicas()) == 1 && len(other.Replicas()) == 1 })
	gate := make(chan struct{})
	a.does(func(rw http.ResponseWriter, r *http.Request) {
		<-gate
		a.complete(rw, r)
	})
	done := make(chan reply, 1)
	go func() { done <- one.ask(t.Context(), run(0, 64), `,"max_tokens":1`) }()
	other.until("it is predicted", func() bool { _, n := other.guessed(); return n == 64/blockTokens })
	close(gate)
	<-done
	other.until("it is over", func() bool { _, n := other.guessed(); return n == 0 })
}

// TestLateReplicaGuesses: who comes late knows where the prompts are that are being worked on.
func TestLateReplicaGuesses(t *testing.T) {
	at := natsServer(t, "127.0.0.1:0").URL()
	g := newTogether(t, 1, 2, at, nil)
	for i := range 40 { // more than one group of them
		g.hold(g.stands[0], 1000*i)
	}
	late := newStand(t, Config{Replicas: &Replicas{NATS: nats.Config{URL: at}, Heartbeat: 50 * time.Millisecond}}, g.workers...)
	late.ready(2)
	late.until("it knows", func() bool { n, _ := late.guessed(); return n == 40*64/blockTokens })
}

// TestGuessesOfReplicasEnd: what a replica tells of a worker that is lost or has left is no
// guess of what it has, nor is what comes twice, or after its release, or in a snapshot that
// is taken anew because a worker left.
func TestGuessesOfReplicasEnd(t *testing.T) {
	g, err := New(Config{Router: router.Config{BlockTokens: blockTokens, Replica: 1, Epoch: 1}})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	c, blind, seen := g.chooser, kv.Rank{Worker: 1}, kv.Rank{Worker: 2}
	join := func(w kv.Rank) {
		if err := c.join(w, router.WorkerSpec{BlockTokens: blockTokens}, w == blind); err != nil {
			t.Fatal(err)
		}
	}
	join(blind)
	join(seen)
	seq := uint64(0)
	made := func(id uint64, w kv.Rank, untold bool) router.Event {
		seq++
		return router.Event{Replica: 2, Epoch: 1, Seq: seq, ID: id, Worker: w, PromptTokens: 8, UncachedTokens: 8, Untold: untold, Hashes: []kv.BlockHash{kv.BlockHash(10 * id), kv.BlockHash(10*id + 1)}}
	}
	want := func(what string, guesses, hopes int) {
		t.Helper()
		if _, a, b := c.metrics(); a != guesses || b != hopes {
			t.Errorf("%s: %d guesses and %d predictions, want %d and %d", what, a, b, guesses, hopes)
		}
	}
	c.apply([]router.Event{made(9, blind, false)}, all)
	want("of one that has just joined", 2, 2)
	c.health(blind, router.Lost)
	want("which is lost", 0, 0)
	c.health(seen, router.Lost)
	ofLost := made(1, seen, false)
	if c.apply([]router.Event{ofLost}, all) != 0 {
		t.Error("refused")
	}
	want("of a lost worker", 0, 2) // it has the request, if it comes back
	c.health(seen, router.Healthy)
	c.health(blind, router.Healthy)
	c.apply([]router.Event{ofLost}, all)
	want("of one that was lost, again", 0, 2)
	events := []router.Event{made(2, seen, false), made(3, seen, true), made(4, blind, false), made(5, seen, false)}
	if c.apply(events, all) != 0 {
		t.Error("refused")
	}
	want("told", 4, 8)
	c.leave(seen)
	want("left", 2, 2)
	late := made(6, seen, true)
	if n := c.apply(append(events, late), all); n != 1 {
		t.Errorf("%d refused", n)
	}
	join(seen)
	c.health(seen, router.Healthy)
	c.apply(events, all)
	want("of one that has left, again", 2, 2)
	ofSnapshot := func(events ...router.Event) *router.Snapshot {
		return &router.Snapshot{Replica: 2, Epoch: 1, Seq: seq, LastID: 100, Events: events}
	}
	if c.applySnapshot(ofSnapshot(events[2], late), true) != 0 {
		t.Error("refused")
	}
	want("anew", 2, 2)
	other, bytes, more := made(7, seen, false), made(17, seen, true), made(27, blind, false)
	if c.applySnapshot(ofSnapshot(events[2], late, other, bytes, more), false) != 0 {
		t.Error("refused")
	}
	want("in a snapshot", 6, 6)
	end := made(8, seen, false)
	released := router.Event{Replica: 2, Epoch: 1, Seq: seq + 1, ID: 8, Kind: router.Released}
	c.apply([]router.Event{released, end, end}, all)
	want("after its release", 6, 6)
	hostile := made(9, seen, false)
	hostile.Hashes = []kv.BlockHash{5, 5}
	c.apply([]router.Event{hostile}, all)
	if err := c.router.Check(); err != nil {
		t.Error(err)
	}
}
