package replica

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coppice-llm/coppice/events/nats"
	"github.com/coppice-llm/coppice/gateway"
	"github.com/coppice-llm/coppice/gateway/internal/members"
	"github.com/coppice-llm/coppice/internal/natstest"
	"github.com/coppice-llm/coppice/router"
)

func natsServer(t testing.TB, addr string) *natstest.Server {
	t.Helper()
	var s *natstest.Server
	bind(t, func() (err error) {
		s, err = natstest.Start(natstest.Config{Addr: addr})
		return err
	})
	t.Cleanup(s.Close)
	return s
}

// together is several gateways in front of the same workers.
type together struct {
	t       *testing.T
	workers []*worker
	stands  []*stand
	gate    chan struct{} // requests wait until it is closed
	replies sync.WaitGroup
}

// newTogether starts n gateways that are connected by the server at; "": not connected.
func newTogether(t *testing.T, n, workers int, at string, change func(i int, c *gateway.Config, talk *Config)) *together {
	t.Helper()
	g := &together{t: t, gate: make(chan struct{})}
	for i := range workers {
		w := newWorker(t, fmt.Sprintf("w%02d", i), false)
		w.does(func(rw http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			rw.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprint(rw, "data: {}\n\n")
			rw.(http.Flusher).Flush()
			select {
			case <-g.gate:
			case <-r.Context().Done():
			}
			fmt.Fprint(rw, "data: [DONE]\n\n")
		})
		g.workers = append(g.workers, w)
	}
	for i := range n {
		cfg := gateway.Config{ProbeEvery: 300 * time.Millisecond}
		var to *Config
		if at != "" {
			to = talkTo(at)
			to.NATS.Retry = time.Millisecond
		}
		if change != nil {
			change(i, &cfg, to)
		}
		g.stands = append(g.stands, newStand(t, cfg, to, g.workers...))
	}
	for _, s := range g.stands {
		s.ready(workers)
	}
	t.Cleanup(g.end)
	return g
}

// talkTo configures replicas to use a server.
func talkTo(at string) *Config {
	return &Config{NATS: nats.Config{URL: at}, Heartbeat: 50 * time.Millisecond, Silence: long}
}

// end lets all requests be answered.
func (g *together) end() {
	g.free()
	g.replies.Wait()
}

func (g *together) free() {
	select {
	case <-g.gate:
	default:
		close(g.gate)
	}
}

// hold starts a request through a gateway; it stays open until the returned function is called.
func (g *together) hold(s *stand, start int) (leave context.CancelFunc) {
	g.t.Helper()
	_, leave = g.begin(s, start, "")
	return leave
}

// begin is the same for a session, and returns its worker.
func (g *together) begin(s *stand, start int, session string) (worker string, leave context.CancelFunc) {
	g.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r, err := http.NewRequestWithContext(ctx, "POST", s.url+"/v1/completions", strings.NewReader(fmt.Sprintf(`{"prompt":%s,"stream":true}`, numbers(start, 64))))
	if err != nil {
		g.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	if session != "" {
		r.Header.Set(headerSession, session)
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		g.t.Fatal(err)
	}
	if res.StatusCode != 200 {
		text, _ := io.ReadAll(res.Body)
		g.t.Fatalf("%s %s", res.Status, text)
	}
	io.ReadFull(res.Body, make([]byte, 10)) // the first token has come
	g.replies.Go(func() {
		io.Copy(io.Discard, res.Body)
		res.Body.Close()
		cancel()
	})
	return res.Header.Get(headerWorker), cancel
}

// reserved returns the requests of each worker by a gateway's count, and their sum.
func (s *stand) reserved() (by []int, sum int) {
	for _, l := range s.d.Loads() {
		by = append(by, l.Requests)
		sum += l.Requests
	}
	return by, sum
}

// same waits until all gateways see the same loads, with n requests in all.
func (g *together) same(n int) {
	g.t.Helper()
	g.stands[0].until(fmt.Sprintf("%d requests seen by all", n), func() bool {
		first := g.stands[0].d.Loads()
		sum := 0
		for _, l := range first {
			sum += l.Requests
		}
		for _, s := range g.stands[1:] {
			loads := s.d.Loads()
			for i := range loads {
				a, b := first[i], loads[i]
				a.Health, b.Health, a.Pending, b.Pending = 0, 0, 0, 0
				a.Stalled, b.Stalled = false, false                               // each router judges by its own clock
				a.ContextTokens, b.ContextTokens, a.Blocks, b.Blocks = 0, 0, 0, 0 // outputs are not exchanged
				if a != b {
					return false
				}
			}
		}
		return sum == n
	})
}

// TestReplicasSpread: requests that come alternately through two gateways, and stay open, are
// spread as by a single gateway. Without the exchange, both choose the same workers.
func TestReplicasSpread(t *testing.T) {
	const n = 30
	for _, talk := range []bool{false, true} {
		at := ""
		if talk {
			at = natsServer(t, "127.0.0.1:0").URL()
		}
		g := newTogether(t, 2, n, at, nil)
		for i := range n {
			g.hold(g.stands[i%2], 1000*i)
			if talk {
				g.same(i + 1)
			}
		}
		at2 := make([]int, n) // requests by the workers' own count
		for i, w := range g.workers {
			at2[i] = w.requests()
		}
		slices.Sort(at2)
		idle, most := 0, at2[n-1]
		for _, v := range at2 {
			if v == 0 {
				idle++
			}
		}
		t.Logf("replicas %v: %d of %d workers idle, the most requests on one %d", talk, idle, n, most)
		if talk && (idle != 0 || most != 1) || !talk && (idle != n/2 || most != 2) {
			t.Errorf("replicas %v: %v", talk, at2)
		}
		if talk {
			for i, s := range g.stands {
				f := s.Fleet()
				if len(f.Replicas) != 1 || f.Replicas[0].Reservations != n/2 || f.Replicas[0].Missing != 0 || f.Replicas[0].Seq == 0 || f.Replicas[0].ID != g.stands[1-i].Fleet().Replica {
					t.Errorf("gateway %d knows of %+v", i, f.Replicas)
				}
				if c := s.counts(); c.Malformed+c.Own+c.Foreign+c.TooMany+c.Gaps > 0 {
					t.Errorf("%+v", c)
				}
			}
		}
		g.end()
		for _, s := range g.stands {
			s.idle()
		}
	}
}

func (s *stand) counts() Counts {
	s.Replicas.mu.Lock()
	defer s.Replicas.mu.Unlock()
	return s.Replicas.peers.counts
}

// silent makes a gateway lose its peers by their silence.
func (s *stand) silent(others ...*stand) {
	s.Replicas.mu.Lock()
	defer s.Replicas.mu.Unlock()
	for _, o := range others {
		if p := s.Replicas.peers.all[o.Replicas.self.id]; p != nil {
			p.heard = time.Time{}
		}
	}
}

// die stops a gateway from sending, and waits until the others have received all it had sent.
func (s *stand) die(others ...*stand) {
	s.t.Helper()
	s.Replicas.mute.Store(true)
	s.mark()
	for _, o := range others {
		o.until("the last words", func() bool { return o.counts().Malformed == 1 })
	}
}

// mark makes the others count a malformed message once they have received all before it.
func (s *stand) mark() {
	s.t.Helper()
	s.Replicas.mu.Lock() // it has finished sending
	err := s.Replicas.bus.Send([]byte("its last words"))
	s.Replicas.mu.Unlock()
	if err != nil {
		s.t.Fatal(err)
	}
}

// TestReplicaRestarts: a router's first message after a restart ends its old reservations, even
// if it has no new ones.
func TestReplicaRestarts(t *testing.T) {
	at := natsServer(t, "127.0.0.1:0").URL()
	s := newTogether(t, 1, 2, at, nil).stands[0]
	b, err := nats.NewBus(nats.BusConfig{Config: nats.Config{URL: at}, Topic: "routers"})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	<-b.Up()
	say := func(m message) {
		t.Helper()
		m.replica, m.blockTokens = 7, blockTokens
		if err := b.Send(appendMessage(nil, &m)); err != nil {
			t.Fatal(err)
		}
	}
	ev := router.Event{Kind: router.Reserved, ID: 1, Worker: s.d.Loads()[0].Worker, PromptTokens: 8, UncachedTokens: 8}
	s.until("it is reserved", func() bool {
		say(message{kind: wireEvents, epoch: 1, seq: 1, events: []router.Event{ev}})
		_, n := s.reserved()
		return n == 1
	})
	say(message{kind: wireHere, epoch: 2})
	s.until("it is gone", func() bool { _, n := s.reserved(); return n == 0 })
	if all := s.Status(); len(all) != 1 {
		t.Errorf("%+v", all)
	}
}

// TestReplicaEnds: a dead router is forgotten with its reservations after Silence, a closed one
// at once. A router that starts later learns all reservations.
func TestReplicaEnds(t *testing.T) {
	at := natsServer(t, "127.0.0.1:0").URL()
	g := newTogether(t, 3, 4, at, nil)
	for i := range 9 {
		g.hold(g.stands[i%3], 1000*i)
	}
	g.same(9)
	late := newStand(t, gateway.Config{}, talkTo(at), g.workers...)
	late.ready(4)
	late.until("the late one knows", func() bool { _, n := late.reserved(); return n == 9 && len(late.Status()) == 3 })

	dead := g.stands[2]
	g.stands = g.stands[:2]
	dead.die(g.stands...)
	for _, s := range g.stands {
		s.silent(dead)
	}
	g.same(6)
	if c := g.stands[0].counts(); c.Lost != 1 || c.Goodbyes != 0 {
		t.Errorf("%+v", c)
	}
	if err := g.stands[1].Close(); err != nil {
		t.Error(err)
	}
	g.stands = g.stands[:1]
	g.same(3)
	g.stands[0].until("the goodbye", func() bool { c := g.stands[0].counts(); return c.Lost == 1 && c.Goodbyes == 1 })
	g.end()
	g.same(0)
}

// TestReplicasServerRestart: while NATS is down, all routers keep working. When it is back they
// agree again, also about changes in between.
func TestReplicasServerRestart(t *testing.T) {
	s := natsServer(t, "127.0.0.1:0")
	at, err := url.Parse(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	for _, forgets := range []bool{true, false} {
		g := newTogether(t, 2, 5, at.String(), nil)
		var leave []context.CancelFunc
		for i := range 10 {
			leave = append(leave, g.hold(g.stands[i%2], 1000*i))
		}
		g.same(10)
		s.Close()
		for i, st := range g.stands {
			st.until("no server", func() bool { return !st.Replicas.bus.Connected() })
			if forgets {
				st.until("forgotten", func() bool {
					st.silent(g.stands[1-i])
					_, n := st.reserved()
					return n == 5
				})
			}
		}
		for i := range 6 {
			g.hold(g.stands[i%2], 100_000+1000*i)
			leave[i]()
		}
		s = natsServer(t, at.Host)
		g.same(10)
		g.end()
		g.same(0)
	}
}

// TestReplicaKnowsMoreWorkers: reservations on a worker that a router does not know yet are
// applied once it does.
func TestReplicaKnowsMoreWorkers(t *testing.T) {
	at := natsServer(t, "127.0.0.1:0").URL()
	g := newTogether(t, 2, 4, at, nil)
	a, b := g.stands[0], g.stands[1]
	var all []members.WorkerConfig
	for _, w := range g.workers {
		all = append(all, members.WorkerConfig{URL: w.http.URL})
	}
	for i := range 8 {
		g.hold(a, 1000*i)
	}
	g.same(8)
	half := 0
	for _, w := range a.Fleet().Workers {
		if w.Name == "w00" || w.Name == "w01" {
			half += w.Ranks[0].Requests
		}
	}
	if half == 0 || half == 8 {
		t.Fatalf("%+v", a.Fleet())
	}
	for range 2 {
		if err := b.SetWorkers(all[:2]); err != nil {
			t.Fatal(err)
		}
		b.until("half of it", func() bool { _, n := b.reserved(); return len(b.d.Loads()) == 2 && n == half })
		if err := b.SetWorkers(all); err != nil {
			t.Fatal(err)
		}
		g.same(8)
	}
}

func TestConfig(t *testing.T) {
	for want, c := range map[string]Config{
		"Interval": {Interval: time.Minute}, "Heartbeat": {Heartbeat: -1}, "Silence": {Silence: time.Second}, "Topic": {Topic: "a b"},
	} {
		if g, err := gateway.New(gateway.Config{Replicas: c.Join}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, %v, want %s", g, err, want)
		}
	}
}
