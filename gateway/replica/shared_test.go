package replica

import (
	"fmt"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/coppice-llm/coppice/gateway"
)

// claimed returns how many claims of other routers were applied.
func (s *stand) claimed() uint64 {
	m, _ := s.d.Metrics()
	return m.Claims
}

// guessed returns the number of guessed and of predicted blocks.
func (s *stand) guessed() (guesses, predictions int) {
	m, guesses := s.d.Metrics()
	return guesses, m.Promised
}

// TestReplicasShareSessions: a session's requests go to one worker through any gateway, even if
// it has more load than others. A gateway that starts later, when all is idle, knows it too.
// Without the exchange, gateways scatter a session.
func TestReplicasShareSessions(t *testing.T) {
	const sessions = 8
	for _, talk := range []bool{false, true} {
		at := ""
		if talk {
			at = natsServer(t, "127.0.0.1:0").URL()
		}
		keep := func(_ int, c *gateway.Config, _ *Config) { c.Router.SessionTTL = time.Hour }
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
		g.stands[2].Close() // the others publish its claims
		for _, s := range g.stands[:2] {
			s.until("the goodbye", func() bool { return s.counts().Goodbyes == 1 && len(s.Status()) == 1 })
		}
		cfg := gateway.Config{}
		keep(0, &cfg, nil)
		late := newStand(t, cfg, talkTo(at), g.workers...)
		late.ready(sessions)
		late.until("the late one hears of all sessions", func() bool { return late.claimed() == sessions })
		g.stands = []*stand{late}
		for i := range home {
			if at := late.ask(77, fmt.Sprintf(`,"stream":true,"user":%q`, name(i))).Get(headerWorker); at != home[i] {
				t.Errorf("%s: %s, and for a late gateway %s", name(i), home[i], at)
			}
		}
	}
}

// TestSessionsOfADeadRouter: a router that started while a dead one was still counted as alive
// learns the dead one's sessions.
func TestSessionsOfADeadRouter(t *testing.T) {
	const sessions = 8
	at := natsServer(t, "127.0.0.1:0").URL()
	keep := func(_ int, c *gateway.Config, _ *Config) { c.Router.SessionTTL = time.Hour }
	g := newTogether(t, 2, sessions, at, keep)
	for i := range sessions {
		g.begin(g.stands[1], 1000*i, fmt.Sprint("session ", i))
	}
	g.same(sessions)
	g.end()
	alive, dead := g.stands[0], g.stands[1]
	dead.die(alive)
	cfg := gateway.Config{}
	keep(0, &cfg, nil)
	late := newStand(t, cfg, talkTo(at), g.workers...)
	late.ready(sessions)
	late.until("it has asked for all that it wants", func() bool {
		late.Replicas.mu.Lock()
		defer late.Replicas.mu.Unlock()
		p := late.Replicas.peers.all[alive.Replicas.self.id]
		return len(late.joined) == 0 && p != nil && !p.wanted
	})
	late.mark()
	alive.until("all is answered", func() bool {
		alive.Replicas.mu.Lock()
		defer alive.Replicas.mu.Unlock()
		return alive.Replicas.peers.counts.Malformed == 2 && !alive.Replicas.due.asked
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

// TestReplicasShareGuesses: a prompt sent by one gateway to a worker without events is found
// there by another.
func TestReplicasShareGuesses(t *testing.T) {
	const prompts, workers = 12, 4
	for _, talk := range []bool{false, true} {
		var fleet []*worker
		for i := range workers {
			fleet = append(fleet, newWorker(t, fmt.Sprint("w", i), false))
		}
		at := natsServer(t, "127.0.0.1:0").URL()
		stands := make([]*stand, 2)
		for i := range stands {
			to := talkTo(at)
			if !talk {
				to = nil
			}
			stands[i] = newStand(t, gateway.Config{ProbeEvery: 300 * time.Millisecond}, to, fleet...)
			stands[i].ready(workers)
		}
		a, b := stands[0], stands[1]
		if talk {
			a.until("they know of each other", func() bool { return len(a.Status()) == 1 && len(b.Status()) == 1 })
		}
		var first [prompts]string
		for i := range prompts {
			first[i] = a.ask(10_000*i, "").Get(headerWorker)
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
			second := b.ask(10_000*i, "")
			b.idle()
			n, err := strconv.Atoi(second.Get(headerOverlap))
			if err != nil {
				t.Fatal(err)
			}
			hits += n
			if first[i] == second.Get(headerWorker) {
				same++
			}
		}
		t.Logf("replicas %v: %d of %d blocks are found, %d of %d prompts where they were", talk, hits, blocks, same, prompts)
		if talk && (hits != blocks || same != prompts) || !talk && hits != 0 {
			t.Errorf("replicas %v: %d of %d blocks are found, %d of %d prompts where they were", talk, hits, blocks, same, prompts)
		}
	}
}

// TestReplicasSharePredictions: a prompt sent by one gateway is predicted by another until its
// first token.
func TestReplicasSharePredictions(t *testing.T) {
	a := newWorker(t, "a", true)
	at := natsServer(t, "127.0.0.1:0").URL()
	var stands []*stand
	for range 2 {
		s := newStand(t, gateway.Config{ProbeEvery: 300 * time.Millisecond}, talkTo(at), a)
		s.ready(1)
		stands = append(stands, s)
	}
	one, other := stands[0], stands[1]
	one.until("they know of each other", func() bool { return len(one.Status()) == 1 && len(other.Status()) == 1 })
	gate := make(chan struct{})
	a.does(func(rw http.ResponseWriter, r *http.Request) {
		<-gate
		complete(rw, r)
	})
	done := make(chan http.Header, 1)
	go func() { done <- one.ask(0, `,"max_tokens":1`) }()
	other.until("it is predicted", func() bool { _, n := other.guessed(); return n == 64/blockTokens })
	close(gate)
	<-done
	other.until("it is over", func() bool { _, n := other.guessed(); return n == 0 })
}

// TestLateReplicaGuesses: a router that starts later knows where the running prompts are.
func TestLateReplicaGuesses(t *testing.T) {
	at := natsServer(t, "127.0.0.1:0").URL()
	g := newTogether(t, 1, 2, at, nil)
	for i := range 40 { // more than one group
		g.hold(g.stands[0], 1000*i)
	}
	late := newStand(t, gateway.Config{}, talkTo(at), g.workers...)
	late.ready(2)
	late.until("it knows", func() bool { n, _ := late.guessed(); return n == 40*64/blockTokens })
}
