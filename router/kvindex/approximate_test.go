package kvindex

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/coppice-llm/coppice/kv"
)

const ms = time.Millisecond

func newApproximate(t testing.TB, cfg ApproximateConfig) *Approximate {
	t.Helper()
	a, err := NewApproximate(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// TestExpire: a prompt that is routed again is kept longer, and so are its shared blocks.
func TestExpire(t *testing.T) {
	a := newApproximate(t, ApproximateConfig{TTL: 50 * ms})
	route := func(h kv.Rank, locals []kv.LocalHash, now time.Duration) {
		t.Helper()
		if err := a.Route(h, tail(locals, 0), now); err != nil {
			t.Fatal(err)
		}
	}
	want := func(locals []kv.LocalHash, want overlaps) {
		t.Helper()
		if got := found(t, a.Find(chain(locals), nil)); !equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
		if err := a.Index().Check(); err != nil {
			t.Fatal(err)
		}
	}
	long, fork := seq(1, 9), []kv.LocalHash{1, 2, 3, 40, 50}
	route(w(0), long, 0)
	route(w(1), long, 0)
	route(w(0), fork, 10*ms)
	route(w(1), long[:5], 25*ms)
	if n := a.Expire(49 * ms); n != 0 {
		t.Errorf("%d expired early", n)
	}
	if n := a.Expire(55 * ms); n != 6+4 {
		t.Errorf("%d expired, want what only the long prompts went through", n)
	}
	want(long, overlaps{w(0): 3, w(1): 5})
	want(fork, overlaps{w(0): 5, w(1): 3})
	if n := a.Expire(85 * ms); n != 10 || a.Index().Stats().Nodes != 0 {
		t.Errorf("%d expired", n)
	}
}

// TestPrune: nothing is evicted up to the limit; beyond it the least recently routed blocks.
func TestPrune(t *testing.T) {
	a := newApproximate(t, ApproximateConfig{MaxBlocks: 14, KeepRatio: 0.5})
	for i := range 14 {
		if err := a.Route(w(0), tail(seq(100*i, 100*i), 0), time.Duration(i)); err != nil {
			t.Fatal(err)
		}
	}
	if n := a.Index().Held(w(0)); n != 14 {
		t.Fatalf("%d blocks, none was to go", n)
	}
	if err := a.Route(w(1), tail(seq(1400, 1400), 0), 14); err != nil {
		t.Fatal(err)
	}
	for i := range 15 {
		if got := len(a.Find(chain(seq(100*i, 100*i)), nil)); (got == 1) != (i >= 8) {
			t.Errorf("block %d is held by %d", i, got)
		}
	}
	if err := a.Route(w(0), tail(seq(1, 15), 0), 20); err != ErrFull {
		t.Errorf("more than all: %v", err)
	}
	if err := a.Route(w(0), tail(seq(1, 14), 0), 20); err != nil { // its own last blocks are evicted last
		t.Fatal(err)
	}
	if got := found(t, a.Find(chain(seq(1, 14)), nil)); !equal(got, overlaps{w(0): 7}) || a.Index().Stats().HolderBlocks != 7 {
		t.Errorf("%v", got)
	}
	if n := a.Expire(20 + 120*time.Second); n != 7 {
		t.Errorf("%d expired of what pruning left", n)
	}
}

// TestPruneLongestFirst: of prompts routed at the same moment the last blocks are evicted first.
func TestPruneLongestFirst(t *testing.T) {
	a := newApproximate(t, ApproximateConfig{MaxBlocks: 20, KeepRatio: 0.5})
	for i, blocks := range []int{3, 9, 9} {
		if err := a.Route(w(0), tail(seq(100*i+1, 100*i+blocks), 0), 0); err != nil {
			t.Fatal(err)
		}
	}
	if a.x.held != 10 || len(a.Find(chain(seq(1, 3)), nil)) != 1 || a.Find(chain(seq(1, 3)), nil)[0].Blocks != 3 {
		t.Errorf("%d blocks left, of the shortest prompt %v", a.x.held, a.Find(chain(seq(1, 3)), nil))
	}
}

// TestApproximateAgainstOracle: a timer at each prompt's end has the same effect as one per
// block.
func TestApproximateAgainstOracle(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 2))
		const ttl = 100
		a := newApproximate(t, ApproximateConfig{TTL: ttl})
		a.x.runBlocks = []int{maxRun, 2, 3}[seed%3]
		a.x.manyKids = []uint32{2, manyKids}[seed%2]
		p := &play{t: t, rng: rng, longest: 8}
		until := map[kv.Rank]map[string]time.Duration{}
		now := time.Duration(0)
		for range 800 {
			now += time.Duration(rng.IntN(12))
			h := w(rng.IntN(3))
			locals := p.sequence()
			switch rng.IntN(20) {
			case 0:
				a.Clear(h)
				delete(until, h)
			case 1:
				a.RemoveWorker(h.Worker)
				delete(until, h)
			default:
				if err := a.Route(h, tail(locals, 0), now); err != nil {
					t.Fatal(err)
				}
				if until[h] == nil {
					until[h] = map[string]time.Duration{}
				}
				for i := range locals {
					until[h][nameOf(locals[:i+1])] = now + ttl
				}
			}
			a.Expire(now)
			if err := a.Index().Check(); err != nil {
				t.Fatal(err)
			}
			for h, blocks := range until {
				for name, end := range blocks {
					if end <= now {
						delete(blocks, name)
					}
				}
				if got := a.Index().Held(h); got != len(blocks) {
					t.Fatalf("seed %d at %d: %v has %d blocks, want %d", seed, now, h, got, len(blocks))
				}
			}
		}
		if a.Expire(now + ttl); len(a.timers.heap.Items)+len(a.timers.at) != 0 || a.x.held != 0 {
			t.Errorf("left: %d timers, %d places, %d blocks", len(a.timers.heap.Items), len(a.timers.at), a.x.held)
		}
	}
}

// TestPruneAtRandom: after any eviction the limit holds and every block has a timer.
func TestPruneAtRandom(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 3))
		a := newApproximate(t, ApproximateConfig{MaxBlocks: 60, KeepRatio: 0.7})
		p := &play{t: t, rng: rng, longest: 12}
		for now := range 500 {
			before := a.x.held
			locals := p.sequence()
			if err := a.Route(w(rng.IntN(3)), tail(locals, 0), time.Duration(now/5)); err != nil && err != ErrFull {
				t.Fatal(err)
			}
			switch held := a.x.held; {
			case held > 60:
				t.Fatalf("%d blocks", held)
			case held < before && held != 42:
				t.Fatalf("pruned from %d to %d, want 42", before, held)
			}
			if err := a.x.Check(); err != nil {
				t.Fatal(err)
			}
		}
		if a.Expire(1000 + 120*time.Second); a.x.held != 0 || len(a.timers.at) != 0 {
			t.Errorf("%d blocks without a timer", a.x.held)
		}
	}
}

func TestMaxOverlaps(t *testing.T) {
	known := []Overlap{{w(3), 5}, {w(1), 2}}
	predicted := []Overlap{{w(1), 4}, {w(2), 1}, {w(3), 3}}
	got := MaxOverlaps(known, predicted)
	if want := []Overlap{{w(1), 4}, {w(2), 1}, {w(3), 5}}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if got := MaxOverlaps(nil, nil); len(got) != 0 {
		t.Errorf("%v", got)
	}
}

func TestApproximateConfig(t *testing.T) {
	for _, bad := range []ApproximateConfig{{TTL: -1}, {MaxBlocks: -1}, {MaxBlocks: MaxBlocks}, {KeepRatio: -0.1}, {KeepRatio: 1.1}, {KeepRatio: math.NaN()}, {Holders: -1}} {
		if _, err := NewApproximate(bad); !errors.Is(err, ErrConfig) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}

// TestChainAlone: prompts by chained hashes alone are found, kept and pruned like those with local
// hashes.
func TestChainAlone(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 4))
		cfg := ApproximateConfig{TTL: 100, MaxBlocks: []int{0, 60}[seed%2]}
		a := newApproximate(t, cfg)
		b := newApproximate(t, cfg)
		p := &play{t: t, rng: rng, longest: 12}
		for now := range 600 {
			now := time.Duration(3 * now)
			h, run := w(rng.IntN(3)), tail(p.sequence(), 0)
			if errA, errB := a.Route(h, run, now), b.Route(h, Run{Hashes: run.Hashes}, now); errA != errB {
				t.Fatalf("%v and %v", errA, errB)
			}
			if x, y := a.Expire(now), b.Expire(now); x != y {
				t.Fatalf("%d and %d expired", x, y)
			}
			if rng.IntN(20) == 0 {
				a.Clear(h)
				b.Clear(h)
			}
			run = tail(p.sequence(), 0)
			if x, y := found(t, a.Find(run.Hashes, nil)), found(t, b.Find(run.Hashes, nil)); !equal(x, y) {
				t.Fatalf("%v and %v", x, y)
			}
			if x, y := a.Index().Stats().HolderBlocks, b.Index().Stats().HolderBlocks; x != y {
				t.Fatalf("%d and %d blocks", x, y)
			}
		}
	}
}

// TestHostileChains: impossible prompts from a hostile replica stay within the limit and expire,
// even with repeated hashes and several parents.
func TestHostileChains(t *testing.T) {
	for seed, names := range []int{4, 30, 1000} {
		a := newApproximate(t, ApproximateConfig{MaxBlocks: 60})
		rng := rand.New(rand.NewPCG(uint64(seed), 5))
		for now := range 5000 {
			hashes := make([]kv.BlockHash, rng.IntN(9))
			for i := range hashes {
				hashes[i] = kv.BlockHash(rng.IntN(names))
			}
			if err := a.Route(w(rng.IntN(3)), Run{Hashes: hashes}, time.Duration(now)); err != nil && err != ErrCollision {
				t.Fatal(err)
			}
			if err := a.Index().Check(); err != nil {
				t.Fatal(err)
			}
			if a.x.held > 60 {
				t.Fatalf("%d blocks after %d prompts, want 60 at most", a.x.held, now+1)
			}
		}
		if a.Expire(5000 + 120*time.Second); a.x.held != 0 || len(a.timers.at) != 0 {
			t.Errorf("of %d names %d blocks and %d timers are left", names, a.x.held, len(a.timers.at))
		}
	}
}
