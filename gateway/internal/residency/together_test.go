package residency

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/coppice-llm/coppice/events"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/router"
	"github.com/coppice-llm/coppice/router/kvindex"
)

// sums are an overlap's blocks: on the device; with the host's; in all tiers.
type sums [3]int

func sumsOf(o router.Overlap) sums { return sums{o.Device, o.Device + o.Host, o.Blocks()} }

func (s sums) max(t sums) sums { return sums{max(s[0], t[0]), max(s[1], t[1]), max(s[2], t[2])} }

// claims bounds what a rank may have of each sequence, over time: each entry holds until the
// next.
type claims struct {
	mu  sync.Mutex
	log [][]sums
}

func (c *claims) add(s []sums) {
	c.mu.Lock()
	c.log = append(c.log, s)
	c.mu.Unlock()
}

func (c *claims) len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.log)
}

// most returns the largest bound from an entry to the last.
func (c *claims) most(from, q int) (most sums) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.log[from:] {
		most = most.max(s[q])
	}
	return most
}

// TestReadersNeverOvercount: while each rank has a writer, no lookup reports more of a rank than
// it had at some time during the lookup. In the end the state is as if one goroutine had made
// all changes.
func TestReadersNeverOvercount(t *testing.T) {
	for i, cfg := range []kvindex.ShardedConfig{{Shards: 2}, {Shards: 3}} {
		t.Run(fmt.Sprint(cfg.Shards), func(t *testing.T) { together(t, Config{Index: cfg}, uint64(i), 1500) })
	}
}

func together(t *testing.T, cfg Config, seed uint64, steps int) {
	p := newPlay(t, cfg, 4, nil)
	all := make([]claims, 4)
	oracles := make([]*held, len(all))
	for i := range all {
		oracles[i] = newHeld()
		all[i].add(make([]sums, len(p.locals)))
	}
	var writers, readers, begun sync.WaitGroup
	var over atomic.Bool
	for i := range 2 {
		begun.Add(1)
		readers.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(i), 6))
			look(t, p, all, rng.IntN(len(p.locals)))
			begun.Done()
			for !over.Load() && !t.Failed() {
				look(t, p, all, rng.IntN(len(p.locals)))
			}
		})
	}
	begun.Wait() // otherwise the writers might finish before the first lookup
	for i := range all {
		wr := &writer{play: p, rank: rankOf(i), o: oracles[i], claims: &all[i], rng: rand.New(rand.NewPCG(seed, uint64(i)))}
		writers.Go(func() {
			for range steps {
				wr.step(t)
			}
		})
	}
	writers.Wait()
	over.Store(true)
	readers.Wait()
	for i, o := range oracles {
		p.all[rankOf(i)] = o
	}
	p.check()
}

func rankOf(i int) kv.Rank {
	return kv.Rank{Worker: kv.WorkerID(1 + i/2), DP: uint32(i % 2)}
}

// look makes one lookup and checks it.
func look(t *testing.T, p *play, all []claims, q int) {
	from := make([]int, len(all))
	for i := range all {
		from[i] = all[i].len() - 1
	}
	got := found(t, p.x.Find(chain(p.locals[q]), nil))
	for i := range all {
		g := got[rankOf(i)]
		if most := all[i].most(from[i], q); sumsOf(g).max(most) != most {
			t.Errorf("rank %d, sequence %d: %+v, at most %v blocks", i, q, g, most)
		}
	}
}

// writer changes one rank and its oracle. Ranks of odd workers never name a lower tier.
type writer struct {
	*play
	rank   kv.Rank
	o      *held
	claims *claims
	rng    *rand.Rand
}

// change claims the larger of the states before and after, while a change is in progress.
func (w *writer) change(oracle, do func()) {
	either := w.now()
	oracle()
	now := w.now()
	for q := range either {
		either[q] = either[q].max(now[q])
	}
	w.claims.add(either)
	do()
	w.claims.add(now)
}

func (w *writer) now() []sums {
	contents := w.o.contents()
	all := make([]sums, len(w.locals))
	for q := range all {
		all[q] = sumsOf(overlap(contents, w.hashes[q]))
	}
	return all
}

func (w *writer) step(t *testing.T) {
	tiers := []kv.Tier{kv.TierDevice, kv.TierDevice, kv.TierHost, kv.TierDisk}
	if w.rank.Worker%2 == 1 {
		tiers = tiers[:1]
	}
	q, tier := w.rng.IntN(len(w.locals)), tiers[w.rng.IntN(len(tiers))]
	from := w.rng.IntN(len(w.locals[q]))
	switch op := w.rng.IntN(60); {
	case op == 0:
		w.change(func() { *w.o = *newHeld() }, func() { w.x.Clear(w.rank) })
	case op == 1:
		w.change(func() { *w.o = *newHeld() }, func() { w.x.Forget(w.rank) })
	case op < 5:
		dump := []events.Stored{w.stored(q, 0, 1+from, tier, 0)}
		w.change(func() { *w.o = *newHeld(); w.o.store(&dump[0], w.hashes[q]) }, func() { w.x.Replace(w.rank, dump) })
	case op < 25: // a demotion, or the end of a sequence
		hashes := w.hashes[q][from:]
		w.change(func() { w.o.remove(tier, hashes) }, func() { w.x.Remove(w.rank, tier, hashes) })
		if k := w.x.rank(w.rank); k == nil || k.tiers == nil {
			w.o.exact = w.o.exact && w.closed(w.o)
		}
	default:
		s := w.stored(q, 0, 1+from, tier, 0)
		w.change(func() { w.o.store(&s, w.hashes[q]) }, func() {
			if err := w.x.Store(w.rank, s); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestReplaceIsOneStep: a reader sees the content before or after, in all tiers.
func TestReplaceIsOneStep(t *testing.T) {
	p := newPlay(t, Config{}, 1, nil)
	r, q := rankOf(0), 1
	dumps := [2][]events.Stored{
		{p.stored(q, 0, 6, kv.TierDevice, 0)},
		{p.stored(q, 0, 2, kv.TierDevice, 0), p.stored(q, 2, 9, kv.TierHost, 0)},
	}
	p.x.Replace(r, dumps[1])
	var over atomic.Bool
	var reader sync.WaitGroup
	reader.Go(func() {
		for !over.Load() && !t.Failed() {
			all := found(t, p.x.Find(chain(p.locals[q]), nil))
			o := all[r]
			if o.Worker = (kv.Rank{}); len(all) != 1 {
				t.Errorf("a reader saw %v", all)
			}
			if o != (router.Overlap{Device: 6}) && o != (router.Overlap{Device: 2, Host: 7}) {
				t.Errorf("a reader saw %+v", o)
			}
		}
	})
	for i := range 2000 {
		p.x.Replace(r, dumps[i%2])
	}
	over.Store(true)
	reader.Wait()
}
