package replica

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/coppice-llm/coppice/events/card"
	"github.com/coppice-llm/coppice/events/nats"
	"github.com/coppice-llm/coppice/gateway/internal/dispatch"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/router"
)

// benchDispatcher returns a dispatcher with workers, and a request of that many blocks. With
// talk it publishes to other routers.
func benchDispatcher(b *testing.B, workers, blocks int, r router.Config, talk *Config) (*dispatch.Dispatcher, *dispatch.Ask) {
	r.Predict = true
	d, err := dispatch.New(dispatch.Config{Router: r.WithDefaults(), GuessTTL: 2 * time.Minute})
	if err != nil {
		b.Fatal(err)
	}
	for i := range workers {
		w := kv.Rank{Worker: kv.WorkerID(i + 1)}
		if err := d.Join(w, &card.Card{}, false); err != nil {
			b.Fatal(err)
		}
		d.SetHealth(w, router.Healthy)
	}
	if talk != nil {
		p, err := talk.Join(d, zap.NewNop(), nil)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { p.Close() })
	}
	tokens := make([]kv.Token, d.BlockTokens()*blocks)
	for i := range tokens {
		tokens[i] = kv.Token(i)
	}
	a := &dispatch.Ask{}
	a.SetPrompt(tokens, kv.Namespace{}, 0, d.BlockTokens(), nil)
	a.Request.PromptTokens, a.Request.Untold = len(tokens), true
	return d, a
}

// replicated is the configuration of a router that publishes its reservations.
func replicated(id router.ReplicaID) router.Config { return router.Config{Replica: id, Epoch: 1} }

func drain(d *dispatch.Dispatcher, dst []router.Event) []router.Event {
	d.With(func(r *router.Router, _ time.Duration) { dst = r.Drain(dst) })
	return dst
}

// BenchmarkReplicas measures a choice, its first token and its end: alone; with a journal
// drained every 32 choices; and at full speed with all of the exchange on the same processors:
// encoding, sending, a server, and another router that applies it.
func BenchmarkReplicas(b *testing.B) {
	at := natsServer(b, "127.0.0.1:0").URL()
	for _, workers := range []int{8, 64} {
		for _, mode := range []string{"alone", "journal", "told"} {
			b.Run(fmt.Sprintf("workers=%d/blocks=512/%s", workers, mode), func(b *testing.B) {
				r, talk := router.Config{SessionTTL: time.Minute}, (*Config)(nil)
				switch mode {
				case "journal":
					r.Replica, r.Epoch = 1, 1
				case "told":
					r.Replica, r.Epoch, talk = 1, 1, &Config{NATS: nats.Config{URL: at}}
				}
				c, a := benchDispatcher(b, workers, 512, r, talk)
				if mode == "told" {
					r.Replica = 2
					benchDispatcher(b, workers, 512, r, talk)
				}
				var events []router.Event
				for i := 0; b.Loop(); i++ {
					a.Request.Session = uint64(i%1000 + 1)
					d, err := c.Choose(b.Context(), a, time.Second)
					if err != nil {
						b.Fatal(err)
					}
					c.Progress(d.Reservation, 1<<14, 1)
					c.Release(d.Reservation)
					if mode == "journal" && i%32 == 0 {
						events = drain(c, events[:0])
					}
				}
			})
		}
	}
}

// BenchmarkReplicaDelay measures the time from a choice until another router knows it.
func BenchmarkReplicaDelay(b *testing.B) {
	at := natsServer(b, "127.0.0.1:0").URL()
	talk := &Config{NATS: nats.Config{URL: at}}
	from, a := benchDispatcher(b, 8, 512, replicated(1), talk)
	to, _ := benchDispatcher(b, 8, 512, replicated(2), talk)
	active := func() int { m, _ := to.Metrics(); return m.Active }
	seen := func(n int) {
		for active() != n {
			runtime.Gosched()
		}
	}
	var delays []time.Duration
	for b.Loop() {
		begun := time.Now()
		d, err := from.Choose(b.Context(), a, time.Second)
		if err != nil {
			b.Fatal(err)
		}
		seen(1)
		delays = append(delays, time.Since(begun))
		from.Release(d.Reservation)
		seen(0)
		time.Sleep(3 * time.Millisecond) // so that it is published at once
	}
	slices.Sort(delays)
	b.ReportMetric(float64(delays[len(delays)/2].Microseconds()), "median-µs")
	b.ReportMetric(float64(delays[len(delays)*99/100].Microseconds()), "p99-µs")
}

// BenchmarkReplicaSnapshot measures how long a snapshot of many reservations holds the
// dispatcher's mutex, at both ends.
func BenchmarkReplicaSnapshot(b *testing.B) {
	for _, n := range []int{1000, 10_000} {
		from, a := benchDispatcher(b, 16, 512, replicated(1), nil)
		to, _ := benchDispatcher(b, 16, 512, replicated(2), nil)
		reserve(b, from, a, n)
		whole := func([]router.Event) {}
		_, s := from.Snapshot(nil, whole)
		for _, stage := range []struct {
			name string
			run  func(b *testing.B)
		}{
			{"make", func(b *testing.B) { from.Snapshot(nil, whole) }},
			{"part", func(b *testing.B) {
				from.With(func(r *router.Router, _ time.Duration) { r.Snapshot(0, 256, &router.Snapshot{}) })
			}},
			{"take", func(b *testing.B) {
				to.Forget(1)
				if to.ApplySnapshot(&s, false) != 0 {
					b.Fatal("refused")
				}
			}},
			{"known", func(*testing.B) { to.With(func(r *router.Router, now time.Duration) { r.ApplySnapshot(now, &s, nil) }) }},
			{"wire", func(b *testing.B) {
				for rest := s.Events; len(rest) > 0; {
					k := fitting(rest, pieceBytes)
					thereAndBack(b, &message{kind: wireSnapshot, replica: 1, pieces: 1, events: rest[:k]})
					rest = rest[k:]
				}
			}},
		} {
			b.Run(fmt.Sprintf("reservations=%d/%s", n, stage.name), func(b *testing.B) {
				for b.Loop() {
					stage.run(b)
				}
			})
		}
	}
}

// reserve makes n reservations that share half of their blocks.
func reserve(b *testing.B, d *dispatch.Dispatcher, a *dispatch.Ask, n int) {
	a.Request.Untold = false // events will confirm it, so it is not guessed
	all := a.Request.Hashes
	for i := range n {
		a.Request.Hashes = append(all[:256:256], make([]kv.BlockHash, 256)...)
		for k := range 256 {
			a.Request.Hashes[256+k] = kv.BlockHash(uint64(i)<<20 + uint64(k) + 1)
		}
		if _, err := d.Choose(b.Context(), a, time.Second); err != nil {
			b.Fatal(err)
		}
		drain(d, nil)
	}
}

// thereAndBack encodes a message and decodes it.
func thereAndBack(b *testing.B, m *message) {
	var d codec
	var got message
	out := appendMessage(nil, m)
	if err := d.decode(out, &got); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(out)))
}

// BenchmarkReplicaSessions measures a snapshot of as many sessions as allowed: collecting it in
// groups, encoding and decoding it, and applying it where none or all of them are known.
func BenchmarkReplicaSessions(b *testing.B) {
	r := replicated(1)
	r.SessionTTL = time.Hour
	from, _ := benchDispatcher(b, 16, 1, r, nil)
	var made []router.Claim
	for i := range uint64(mostClaims) {
		made = append(made, router.Claim{Session: 1 + i*0x9e3779b97f4a7c15, Stamp: i + 1, Replica: 9, Worker: kv.Rank{Worker: kv.WorkerID(1 + i%16)}})
	}
	from.ApplyClaims(made)
	var claims []router.Claim
	b.Run("fetch", func(b *testing.B) {
		for b.Loop() {
			claims = from.Claims(claims[:0])
		}
	})
	claims = from.Claims(claims[:0])
	if len(claims) != mostClaims {
		b.Fatal(len(claims))
	}
	b.Run("wire", func(b *testing.B) {
		for b.Loop() {
			for part := range slices.Chunk(claims, (pieceBytes-messageHead)/claimBytes) {
				thereAndBack(b, &message{kind: wireSnapshot, replica: 1, pieces: 1, claims: part})
			}
		}
	})
	for _, what := range []string{"take", "known"} {
		b.Run(what, func(b *testing.B) {
			for b.Loop() {
				if what == "take" {
					for i := range claims {
						claims[i].Stamp += mostClaims
					}
				}
				from.ApplyClaims(claims)
			}
		})
	}
}
