package gateway

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/coppice-llm/coppice/events/nats"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/router"
)

// benchChooser is a chooser with workers, and a request of so many blocks.
func benchChooser(b *testing.B, workers, blocks int, change func(*Config)) (*chooser, *ask) {
	cfg := Config{}
	if change != nil {
		change(&cfg)
	}
	g, err := New(cfg)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { g.Close() })
	for i := range workers {
		w := kv.Rank{Worker: kv.WorkerID(i + 1)}
		if err := g.chooser.join(w, router.WorkerSpec{BlockTokens: 16}, false); err != nil {
			b.Fatal(err)
		}
		g.chooser.health(w, router.Healthy)
	}
	a := &ask{}
	a.Reset()
	tokens := make([]kv.Token, 16*blocks)
	for i := range tokens {
		tokens[i] = kv.Token(i)
	}
	a.hashes.Reset(tokens, kv.Namespace{})
	a.req.PromptTokens, a.req.Hashes, a.req.Untold = len(tokens), a.hashes.Hashes(16), true
	return g.chooser, a
}

// BenchmarkReplicas is a choice, its first token and its end: alone; with a journal of it
// that is fetched every 32 times; and as fast as they come, with all that is done for them
// on the same processors: encoding, sending, a server, and another gateway that hears of it.
func BenchmarkReplicas(b *testing.B) {
	at := natsServer(b, "127.0.0.1:0").URL()
	for _, workers := range []int{8, 64} {
		for _, mode := range []string{"alone", "journal", "told"} {
			b.Run(fmt.Sprintf("workers=%d/blocks=512/%s", workers, mode), func(b *testing.B) {
				change := func(c *Config) {
					c.Router.SessionTTL = time.Minute
					switch mode {
					case "journal":
						c.Router.Replica, c.Router.Epoch = 1, 1
					case "told":
						c.Replicas = &Replicas{NATS: nats.Config{URL: at}}
					}
				}
				c, a := benchChooser(b, workers, 512, change)
				switch mode {
				case "journal":
					c.replicate()
				case "told":
					benchChooser(b, workers, 512, change)
				}
				var events []router.Event
				for i := 0; b.Loop(); i++ {
					a.req.Session = uint64(i%1000 + 1)
					d, err := c.choose(b.Context(), a, time.Second)
					if err != nil {
						b.Fatal(err)
					}
					c.progress(d.Reservation, 1<<14, 1)
					c.release(d.Reservation)
					if mode == "journal" && i%32 == 0 {
						events = c.drainEvents(events[:0])
					}
				}
			})
		}
	}
}

// BenchmarkReplicaDelay is from a choice to another gateway's knowing of it.
func BenchmarkReplicaDelay(b *testing.B) {
	at := natsServer(b, "127.0.0.1:0").URL()
	change := func(c *Config) { c.Replicas = &Replicas{NATS: nats.Config{URL: at}} }
	from, a := benchChooser(b, 8, 512, change)
	to, _ := benchChooser(b, 8, 512, change)
	active := func() int { m, _, _ := to.metrics(); return m.Active }
	seen := func(n int) {
		for active() != n {
			runtime.Gosched()
		}
	}
	var delays []time.Duration
	for b.Loop() {
		begun := time.Now()
		d, err := from.choose(b.Context(), a, time.Second)
		if err != nil {
			b.Fatal(err)
		}
		seen(1)
		delays = append(delays, time.Since(begun))
		from.release(d.Reservation)
		seen(0)
		time.Sleep(3 * time.Millisecond) // so that it is told at once
	}
	slices.Sort(delays)
	b.ReportMetric(float64(delays[len(delays)/2].Microseconds()), "median-µs")
	b.ReportMetric(float64(delays[len(delays)*99/100].Microseconds()), "p99-µs")
}

// BenchmarkReplicaSnapshot is how long the chooser's mutex is held for a snapshot of many
// reservations, and the other side.
func BenchmarkReplicaSnapshot(b *testing.B) {
	for _, n := range []int{1000, 10_000} {
		change := func(id router.ReplicaID) func(c *Config) {
			return func(c *Config) { c.Router.Replica, c.Router.Epoch = id, 1 }
		}
		from, a := benchChooser(b, 16, 512, change(1))
		to, _ := benchChooser(b, 16, 512, change(2))
		a.req.Untold = false // of workers with events: it is no guess then
		all := a.req.Hashes
		for i := range n {
			a.req.Hashes = append(all[:256:256], make([]kv.BlockHash, 256)...) // half of it is shared
			for k := range 256 {
				a.req.Hashes[256+k] = kv.BlockHash(uint64(i)<<20 + uint64(k) + 1)
			}
			if _, err := from.choose(b.Context(), a, time.Second); err != nil {
				b.Fatal(err)
			}
			from.drainEvents(nil)
		}
		var s router.Snapshot
		b.Run(fmt.Sprintf("reservations=%d/make", n), func(b *testing.B) {
			for b.Loop() {
				_, s = from.snapshot(nil)
			}
		})
		if len(s.Events) == 0 {
			_, s = from.snapshot(nil)
		}
		own := ledger{open: map[uint64]*router.Event{}}
		own.rewrite(&s)
		b.Run(fmt.Sprintf("reservations=%d/ledger", n), func(b *testing.B) {
			var all []router.Event
			for b.Loop() {
				all = own.snapshot(all[:0])
			}
		})
		b.Run(fmt.Sprintf("reservations=%d/take", n), func(b *testing.B) {
			for b.Loop() {
				to.forget(1)
				if to.applySnapshot(&s, false) != 0 {
					b.Fatal("refused")
				}
			}
		})
		b.Run(fmt.Sprintf("reservations=%d/known", n), func(b *testing.B) {
			for b.Loop() {
				to.mu.Lock()
				to.verdicts, _ = to.router.ApplySnapshot(to.now(), &s, to.verdicts[:0])
				to.mu.Unlock()
			}
		})
		b.Run(fmt.Sprintf("reservations=%d/wire", n), func(b *testing.B) {
			var d decoder
			var out []byte
			bytes := 0
			for b.Loop() {
				bytes = 0
				for rest := s.Events; len(rest) > 0; {
					k := fitting(rest, pieceBytes)
					out = appendMessage(out[:0], &message{kind: wireSnapshot, replica: 1, pieces: 1, events: rest[:k]})
					var m message
					if err := d.decode(out, &m); err != nil {
						b.Fatal(err)
					}
					bytes += len(out)
					rest = rest[k:]
				}
			}
			b.SetBytes(int64(bytes))
		})
	}
}

// BenchmarkReplicaSessions is what a snapshot tells of as many sessions as there may be:
// fetched by groups, written and read, and taken by who knows of none and of all.
func BenchmarkReplicaSessions(b *testing.B) {
	change := func(id router.ReplicaID) func(c *Config) {
		return func(c *Config) {
			c.Router.Replica, c.Router.Epoch, c.Router.SessionTTL = id, 1, time.Hour
		}
	}
	from, _ := benchChooser(b, 16, 1, change(1))
	var made []router.Claim
	for i := range uint64(mostClaims) {
		made = append(made, router.Claim{Session: 1 + i*0x9e3779b97f4a7c15, Stamp: i + 1, Replica: 9, Worker: kv.Rank{Worker: kv.WorkerID(1 + i%16)}})
	}
	from.router.ApplyClaims(0, made)
	var claims []router.Claim
	b.Run("fetch", func(b *testing.B) {
		for b.Loop() {
			claims = from.claims(claims[:0])
		}
	})
	claims = from.claims(claims[:0])
	if len(claims) != mostClaims {
		b.Fatal(len(claims))
	}
	b.Run("wire", func(b *testing.B) {
		var d decoder
		var out []byte
		bytes := 0
		for b.Loop() {
			bytes = 0
			for part := range slices.Chunk(claims, (pieceBytes-messageHead)/claimBytes) {
				out = appendMessage(out[:0], &message{kind: wireSnapshot, replica: 1, pieces: 1, claims: part})
				var m message
				if err := d.decode(out, &m); err != nil {
					b.Fatal(err)
				}
				bytes += len(out)
			}
		}
		b.SetBytes(int64(bytes))
	})
	for _, what := range []string{"take", "known"} {
		b.Run(what, func(b *testing.B) {
			for b.Loop() {
				if what == "take" {
					for i := range claims {
						claims[i].Stamp += mostClaims
					}
				}
				from.applyClaims(claims)
			}
		})
	}
}
