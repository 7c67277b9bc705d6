package gateway

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/zeebo/xxh3"

	"github.com/coppice-llm/coppice/events/nats"
	"github.com/coppice-llm/coppice/events/nats/embedded"
	"github.com/coppice-llm/coppice/router"
)

func natsServer(t testing.TB, addr string) *embedded.Server {
	t.Helper()
	var s *embedded.Server
	bind(t, func() (err error) {
		s, err = embedded.Start(embedded.Config{Addr: addr, Dir: t.TempDir()})
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
	gate    chan struct{} // requests are held until it is closed
	replies sync.WaitGroup
}

// newTogether starts n of them; at is where they talk, "" for not at all.
func newTogether(t *testing.T, n, workers int, at string, change func(i int, c *Config)) *together {
	t.Helper()
	g := &together{t: t, gate: make(chan struct{})}
	for i := range workers {
		w := newWorker(t, fmt.Sprintf("w%02d", i), false, nil)
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
		cfg := Config{ProbeEvery: 300 * time.Millisecond}
		if at != "" {
			cfg.Replicas = &Replicas{NATS: nats.Config{URL: at, Retry: time.Millisecond}, Heartbeat: 50 * time.Millisecond, Silence: long}
		}
		if change != nil {
			change(i, &cfg)
		}
		g.stands = append(g.stands, newStand(t, cfg, g.workers...))
	}
	for _, s := range g.stands {
		s.ready(workers)
	}
	t.Cleanup(g.end)
	return g
}

// end has all requests answered.
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

// hold has a request begun through a gateway, and open until free or the returned call.
func (g *together) hold(s *stand, start int) (leave context.CancelFunc) {
	g.t.Helper()
	_, leave = g.begin(s, start, "")
	return leave
}

// begin is the same for a session, and says which worker has it.
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
	io.ReadFull(res.Body, make([]byte, 10)) // its first token has come
	g.replies.Go(func() {
		io.Copy(io.Discard, res.Body)
		res.Body.Close()
		cancel()
	})
	return reply{Response: res}.worker(), cancel
}

func numbers(start, n int) string {
	return strings.ReplaceAll(fmt.Sprint(run(start, n)), " ", ",")
}

// requests are those of each worker, as a gateway sees them, and where they are.
func (s *stand) reserved() (by []int, sum int) {
	for _, l := range s.chooser.loads() {
		by = append(by, l.Requests)
		sum += l.Requests
	}
	return by, sum
}

// same waits until all gateways see the same loads, of so many requests.
func (g *together) same(n int) {
	g.t.Helper()
	g.stands[0].until(fmt.Sprintf("%d requests seen by all", n), func() bool {
		first := g.stands[0].chooser.loads()
		sum := 0
		for _, l := range first {
			sum += l.Requests
		}
		for _, s := range g.stands[1:] {
			loads := s.chooser.loads()
			for i := range loads {
				a, b := first[i], loads[i]
				a.Health, b.Health, a.Pending, b.Pending = 0, 0, 0, 0
				a.ContextTokens, b.ContextTokens, a.Blocks, b.Blocks = 0, 0, 0, 0 // outputs are not told
				if a != b {
					return false
				}
			}
		}
		return sum == n
	})
}

// TestReplicasSpread: requests that come alternately through two gateways, and stay open,
// are spread as if there were one gateway; without a word between them, both choose the
// same workers.
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
		at2 := make([]int, n) // requests of a worker, as it itself knows
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

func (s *stand) counts() ReplicaCounts {
	s.replicas.mu.Lock()
	defer s.replicas.mu.Unlock()
	return s.replicas.peers.counts
}

// silent lets the silence of other gateways be over, at a gateway that hears them no more.
func (s *stand) silent(others ...*stand) {
	s.replicas.mu.Lock()
	defer s.replicas.mu.Unlock()
	for _, o := range others {
		if p := s.replicas.peers.all[o.replicas.self]; p != nil {
			p.heard = time.Time{}
		}
	}
}

// die has a gateway say nothing any more, and waits until the others have heard all that
// it had said.
func (s *stand) die(others ...*stand) {
	s.t.Helper()
	s.replicas.mute.Store(true)
	s.replicas.mu.Lock() // what it was saying is said
	err := s.replicas.bus.Send([]byte("its last words"))
	s.replicas.mu.Unlock()
	if err != nil {
		s.t.Fatal(err)
	}
	for _, o := range others {
		o.until("the last words", func() bool { return o.counts().Malformed == 1 })
	}
}

// TestReplicaEnds: a gateway that dies is forgotten after its silence, and with it what it
// had reserved; one that closes is at once. One that comes late knows what was reserved.
func TestReplicaEnds(t *testing.T) {
	at := natsServer(t, "127.0.0.1:0").URL()
	g := newTogether(t, 3, 4, at, nil)
	for i := range 9 {
		g.hold(g.stands[i%3], 1000*i)
	}
	g.same(9)
	late := newStand(t, Config{Replicas: &Replicas{NATS: nats.Config{URL: at}, Heartbeat: 50 * time.Millisecond, Silence: long}}, g.workers...)
	late.ready(4)
	late.until("the late one knows", func() bool { _, n := late.reserved(); return n == 9 && len(late.Replicas()) == 3 })

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

// TestReplicasServerRestart: NATS is killed, and all goes on; when it is back, all agree
// again, on what came and went in between too.
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
			st.until("no server", func() bool { return !st.replicas.bus.Connected() })
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

// TestReplicasHostileNetwork: messages are lost, come twice and in another order; in the
// end all agree.
func TestReplicasHostileNetwork(t *testing.T) {
	var calm sync.Map // gateways whose messages pass as they are
	at := natsServer(t, "127.0.0.1:0").URL()
	g := newTogether(t, 3, 4, at, func(i int, c *Config) {
		c.Router.SessionTTL = time.Hour
		rng := rand.New(rand.NewPCG(1, uint64(i)))
		c.Replicas.between = func(in <-chan []byte) <-chan []byte {
			out := make(chan []byte)
			go func() {
				defer close(out)
				var kept [][]byte
				for m := range in {
					if _, ok := calm.Load(i); ok {
						out <- m
						continue
					}
					kept = append(kept, m)
					if rng.IntN(5) == 0 { // twice
						kept = append(kept, m)
					}
					if rng.IntN(5) == 0 { // never
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
	// Even so: the loss goes on, and snapshots heal it.
	g.same(len(leave))
	sum := ReplicaCounts{}
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

// session is the worker of one.
func (s *stand) session(name string) (router.Worker, bool) {
	s.chooser.mu.Lock()
	defer s.chooser.mu.Unlock()
	return s.chooser.router.Session(s.chooser.now(), max(1, xxh3.HashString("\x00"+name)))
}

// TestReplicasHostileMessages: what is no message, of another block size or of too many is
// counted and changes nothing.
func TestReplicasHostileMessages(t *testing.T) {
	at := natsServer(t, "127.0.0.1:0").URL()
	g := newTogether(t, 1, 2, at, func(_ int, c *Config) { c.Router.MaxPeers, c.Router.SessionTTL = 3, time.Hour })
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
	own := message{kind: wireHere, replica: s.replicas.self, epoch: 1, blockTokens: blockTokens}
	s.until("it hears", func() bool { say(own); return s.counts().Own > 0 })
	if err := b.Send([]byte("hostile")); err != nil {
		t.Fatal(err)
	}
	s.until("all of that is heard", func() bool { return s.counts().Malformed == 1 })
	base := s.counts().Own
	w := s.chooser.loads()[0].Worker
	ev := router.Event{Kind: router.Reserved, ID: 1, Worker: w, PromptTokens: 8, UncachedTokens: 8}
	if err := b.Send([]byte("hostile")); err != nil {
		t.Fatal(err)
	}
	say(message{kind: wireEvents, replica: s.replicas.self, epoch: 1, blockTokens: blockTokens, seq: 1, events: []router.Event{ev}})
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
	stranger.Worker.ID++
	say(message{kind: wireEvents, replica: 101, epoch: 5, blockTokens: blockTokens, seq: 1, events: []router.Event{stranger, ev}})
	for range 100 { // whoever asks all the time is answered, but not each time
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
	if s.logs.FilterMessageSnippet("blocks of another size").Len() != 1 {
		t.Error("another block size is not told loudly")
	}
	if c := s.counts(); c.Doubted != 2 || s.claimed() != 0 {
		t.Errorf("a claim of the future is not doubted: %+v", c)
	}
	if s.logs.FilterMessageSnippet("another version").Len() != 1 {
		t.Error("another version is not told loudly, or not once")
	}
	if c := s.counts(); c.SentSnapshots > 50 {
		t.Errorf("%d snapshots sent", c.SentSnapshots)
	}
	res, err := http.Get(s.url + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	text, _ := io.ReadAll(res.Body)
	res.Body.Close()
	for _, want := range []string{"coppice_router_replicas 3", "coppice_router_replica_connected 1", `coppice_router_replica_messages_total{what="foreign"} 1`, `coppice_router_replica_events_total{what="rejected"} 1`} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %s", want)
		}
	}
}

// TestReplicaKnowsMoreWorkers: what was reserved on a worker that a gateway does not know
// yet is known when it does.
func TestReplicaKnowsMoreWorkers(t *testing.T) {
	at := natsServer(t, "127.0.0.1:0").URL()
	g := newTogether(t, 2, 4, at, nil)
	a, b := g.stands[0], g.stands[1]
	var all []Worker
	for _, w := range g.workers {
		all = append(all, Worker{URL: w.http.URL})
	}
	for i := range 8 {
		g.hold(a, 1000*i)
	}
	g.same(8)
	half := a.worker("w00").Ranks[0].Requests + a.worker("w01").Ranks[0].Requests
	if half == 0 || half == 8 {
		t.Fatalf("%+v", a.Fleet())
	}
	for range 2 {
		if err := b.SetWorkers(all[:2]); err != nil {
			t.Fatal(err)
		}
		b.until("half of it", func() bool { _, n := b.reserved(); return len(b.chooser.loads()) == 2 && n == half })
		if err := b.SetWorkers(all); err != nil {
			t.Fatal(err)
		}
		g.same(8)
	}
}

func TestReplicasConfig(t *testing.T) {
	for want, r := range map[string]Replicas{
		"Interval": {Interval: time.Minute}, "Heartbeat": {Heartbeat: -1}, "Silence": {Silence: time.Second}, "Topic": {Topic: "a b"},
	} {
		if g, err := New(Config{Replicas: &r}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, %v, want %s", g, err, want)
		}
	}
	for range 100 {
		var c router.Config
		(&Replicas{}).name(&c)
		if c.Replica == 0 || c.Epoch == 0 {
			t.Fatalf("%+v", c)
		}
	}
}
