package kvindex

import (
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/coppice-llm/coppice/internal/wide"
	"github.com/coppice-llm/coppice/kv"
)

// TestShardedAgainstOracle plays the sharded index next to the plain one.
func TestShardedAgainstOracle(t *testing.T) {
	for seed := range uint64(12) {
		s, err := NewSharded(ShardedConfig{Shards: 1 + int(seed%4)})
		if err != nil {
			t.Fatal(err)
		}
		rng := rand.New(rand.NewPCG(seed, 4))
		p := &play{t: t, rng: rng, longest: 12}
		oracle := naive{}
		for range 700 {
			locals, h := p.sequence(), w(rng.IntN(5))
			at := rng.IntN(len(locals))
			switch rng.IntN(14) {
			case 0:
				s.Clear(h)
				delete(oracle, h)
			case 1:
				s.Forget(h)
				delete(oracle, h)
			case 2, 3, 4, 5, 6:
				known := 0
				for i := at; i < len(locals); i++ {
					if oracle.remove(h, locals[:i+1]) {
						known++
					}
				}
				if got := s.Remove(h, chain(locals)[at:]); got != known {
					t.Fatalf("%d removed, want %d", got, known)
				}
			default:
				_, err := s.Store(h, tail(locals, at))
				if ok := oracle.store(h, locals, at); ok != (err == nil) {
					t.Fatalf("%v, oracle %v", err, ok)
				}
			}
			if err := s.Check(); err != nil {
				t.Fatal(err)
			}
			probe := p.seqs[rng.IntN(len(p.seqs))]
			if got, want := found(t, s.Find(chain(probe), nil)), oracle.find(probe); !equal(got, want) {
				t.Fatalf("seed %d: %v, want %v", seed, got, want)
			}
			if s.Held(h) != len(oracle[h]) {
				t.Fatalf("%d held, want %d", s.Held(h), len(oracle[h]))
			}
		}
	}
}

// claim bounds what one holder may have; its writer keeps it for the readers.
type claim struct {
	changes atomic.Uint64
	most    []atomic.Int64 // most blocks by sequence
}

// TestReadersNeverOvercount: while each holder has a writer, no reader sees more of a holder
// than it had at any time during the lookup. In the end the state is as if one goroutine had
// made all changes.
func TestReadersNeverOvercount(t *testing.T) {
	for seed, cfg := range []ShardedConfig{{Shards: 1}, {Shards: 4}} {
		together(t, cfg, uint64(seed), 600)
	}
}

func FuzzSharded(f *testing.F) {
	f.Add(uint64(1), uint8(2))
	f.Add(uint64(2), uint8(5))
	f.Fuzz(func(t *testing.T, seed uint64, shards uint8) {
		together(t, ShardedConfig{Shards: 1 + int(shards%16)}, seed, 100)
	})
}

func together(t *testing.T, cfg ShardedConfig, seed uint64, steps int) {
	s, err := NewSharded(cfg)
	if err != nil {
		t.Fatal(err)
	}
	seqs := family()
	const holders = 4
	claims := make([]claim, holders)
	var writers, readers sync.WaitGroup
	var over atomic.Bool
	var checked atomic.Int64
	for h := range claims {
		claims[h].most = make([]atomic.Int64, len(seqs))
		writers.Go(func() {
			wr, rng := &writer{s: s, h: w(h), claim: &claims[h], seqs: seqs}, rand.New(rand.NewPCG(seed*holders+uint64(h), 7))
			wr.play(t, rng, steps/2)
			// On a busy machine all writers could finish before a reader has compared anything.
			// While they wait here nothing changes, so the next lookup counts.
			for checked.Load() == 0 {
				runtime.Gosched()
			}
			wr.play(t, rng, steps-steps/2)
		})
	}
	for r := range 2 {
		readers.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(r), 6))
			for !over.Load() {
				q := rng.IntN(len(seqs))
				checked.Add(int64(look(t, s, claims, seqs[q], q)))
			}
		})
	}
	writers.Wait()
	over.Store(true)
	readers.Wait()
	if err := s.Check(); err != nil {
		t.Error(err)
	}
	for q := range seqs { // no writer runs now: the result is exact
		got := found(t, s.Find(chain(seqs[q]), nil))
		for h := range claims {
			if want := claims[h].most[q].Load(); int64(got[w(h)]) != want {
				t.Errorf("%d shards: at the end holder %d has %d of sequence %d, want %d", cfg.Shards, h, got[w(h)], q, want)
			}
		}
	}
}

// family returns sequences with common prefixes of many lengths.
func family() [][]kv.LocalHash {
	var seqs [][]kv.LocalHash
	for i := range 12 {
		var stem []kv.LocalHash
		if i >= 3 {
			from := seqs[i/2-1]
			stem = slices.Clone(from[:len(from)*(1+i%3)/4])
		}
		seqs = append(seqs, append(stem, seq(1000*i+1, 1000*i+60)...))
	}
	return seqs
}

// look makes one lookup and checks each holder that did not change meanwhile.
func look(t *testing.T, s *Sharded, claims []claim, locals []kv.LocalHash, q int) (checked int) {
	before := make([]uint64, len(claims))
	most := make([]int64, len(claims))
	for h := range claims {
		before[h] = claims[h].changes.Load()
		most[h] = claims[h].most[q].Load()
	}
	got := found(t, s.Find(chain(locals), nil))
	for h := range claims {
		if claims[h].changes.Load() != before[h] {
			continue
		}
		checked++
		if int64(got[w(h)]) > most[h] {
			t.Errorf("holder %d has %d blocks of sequence %d, at most %d are possible", h, got[w(h)], q, most[h])
		}
	}
	return checked
}

// writer changes one holder. A claim rises before the index does and falls after it.
type writer struct {
	s     *Sharded
	h     kv.Rank
	claim *claim
	seqs  [][]kv.LocalHash
}

func (wr *writer) play(t *testing.T, rng *rand.Rand, steps int) {
	for range steps {
		q := rng.IntN(len(wr.seqs))
		locals := wr.seqs[q]
		n := 1 + rng.IntN(len(locals))
		switch op := rng.IntN(20); {
		case op == 0:
			wr.s.Clear(wr.h)
			wr.lower(locals, 0, func(int) bool { return true })
		case op < 10:
			wr.s.Remove(wr.h, chain(locals)[n-1:n])
			wr.lower(locals, n-1, func(shared int) bool { return shared >= n })
		default:
			wr.claim.changes.Add(1)
			for r := range wr.seqs {
				shared := min(n, wide.CommonPrefix(wr.seqs[r], locals))
				wr.claim.most[r].Store(max(wr.claim.most[r].Load(), int64(shared)))
			}
			wr.claim.changes.Add(1)
			if _, err := wr.s.Store(wr.h, tail(locals[:n], 0)); err != nil {
				t.Error(err)
			}
		}
	}
}

// lower lowers the claim, to at most keep blocks, for each sequence for which touches returns
// true. touches gets the number of leading blocks that the sequence shares with locals.
func (wr *writer) lower(locals []kv.LocalHash, keep int, touches func(shared int) bool) {
	wr.claim.changes.Add(1)
	for r := range wr.seqs {
		if touches(wide.CommonPrefix(wr.seqs[r], locals)) {
			wr.claim.most[r].Store(min(wr.claim.most[r].Load(), int64(keep)))
		}
	}
	wr.claim.changes.Add(1)
}

// TestManyGoInParts: blocks removed in parts are gone in the end, for their holder only. Until
// then a reader sees ever fewer blocks, and never a hole.
func TestManyGoInParts(t *testing.T) {
	const blocks = 3*maxChunk + 100
	for _, forget := range []bool{false, true} {
		for _, shards := range []int{1, 2} {
			s, err := NewSharded(ShardedConfig{Shards: shards})
			if err != nil {
				t.Fatal(err)
			}
			locals := seq(1, blocks)
			branch := append(slices.Clone(locals[:blocks/2]), seq(1_000_000, 1_000_000+maxChunk)...)
			for _, h := range []kv.Rank{w(1), w(2)} {
				for _, q := range [][]kv.LocalHash{locals, branch} {
					if _, err := s.Store(h, tail(q, 0)); err != nil {
						t.Fatal(err)
					}
				}
			}
			all := s.Held(w(2))
			var over atomic.Bool
			var reader sync.WaitGroup
			reader.Go(func() {
				last := uint32(len(locals))
				for !over.Load() {
					n := found(t, s.Find(chain(locals), nil))
					if n[w(1)] > last || n[w(2)] != uint32(len(locals)) {
						t.Errorf("%d blocks after %d, the other has %d", n[w(1)], last, n[w(2)])
						return
					}
					last = n[w(1)]
				}
			})
			if forget {
				s.Forget(w(1))
			} else {
				s.Clear(w(1))
			}
			over.Store(true)
			reader.Wait()
			if err := s.Check(); err != nil {
				t.Error(err)
			}
			if n := found(t, s.Find(chain(locals), nil)); n[w(1)] != 0 || s.Held(w(1)) != 0 || s.Held(w(2)) != all || len(s.Holders()) != map[bool]int{false: 2, true: 1}[forget] {
				t.Errorf("%d shards: %v, %d and %d held, holders %v", shards, n, s.Held(w(1)), s.Held(w(2)), s.Holders())
			}
		}
	}
}

// TestHeldWaitsForNoShard: Held returns while all shards are being written, and equals the
// shards' sum after any change.
func TestHeldWaitsForNoShard(t *testing.T) {
	s, err := NewSharded(ShardedConfig{Shards: 3})
	if err != nil {
		t.Fatal(err)
	}
	same := func(what string, h kv.Rank, want int) {
		t.Helper()
		sum := 0
		for i := range s.shards {
			s.shards[i].Lock()
			sum += s.shards[i].x.Held(h)
			defer s.shards[i].Unlock()
		}
		if got := s.Held(h); got != sum || got != want {
			t.Errorf("%s: %v has %d blocks, in the shards %d, want %d", what, h, got, sum, want)
		}
	}
	a, b := kv.Rank{Worker: 1}, kv.Rank{Worker: 1, DP: 1}
	check := func(what string, wantA, wantB int) {
		t.Helper()
		func() { same(what, a, wantA) }()
		func() { same(what, b, wantB) }()
	}
	for i := range 6 {
		if _, err := s.Store(a, tail(seq(100*i+1, 100*i+10), 0)); err != nil {
			t.Fatal(err)
		}
	}
	check("Store", 60, 0)
	s.Remove(a, chain(seq(1, 10))[4:5])
	check("Remove", 54, 0)
	s.Swap(a, b)
	check("Swap", 0, 54)
	s.Forget(b)
	check("Forget", 0, 0)
	if len(s.held) != 0 {
		t.Errorf("%d holders are counted, of none", len(s.held))
	}
}
