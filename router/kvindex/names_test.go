package kvindex

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/coppice-llm/coppice/kv"
)

// abroad returns hashes as an engine with another hash function would have them, one for each of
// hashes. Another seed gives other hashes.
func abroad(hashes []kv.BlockHash, seed uint64) []kv.BlockHash {
	out := make([]kv.BlockHash, len(hashes))
	for i, h := range hashes {
		out[i] = (h ^ kv.BlockHash(seed)) * 0x9e3779b97f4a7c15
	}
	return out
}

func abroadRun(r Run, seed uint64) Run {
	r.Hashes = abroad(r.Hashes, seed)
	if r.HasParent {
		r.Parent = abroad([]kv.BlockHash{r.Parent}, seed)[0]
	}
	return r
}

func TestNames(t *testing.T) {
	n := NewNames(10)
	r := abroadRun(tail(seq(1, 6), 0), 1)
	got, gone, err := n.Store(r)
	if err != nil || len(gone) != 0 || got.Hashes[5] != chain(seq(1, 6))[5] || n.Len() != 6 {
		t.Fatalf("%v, gone %v, %v", got, gone, err)
	}
	got, _, err = n.Store(abroadRun(tail(seq(1, 8), 6), 1))
	if err != nil || !got.HasParent || got.Parent != chain(seq(1, 6))[5] || got.Hashes[1] != chain(seq(1, 8))[7] {
		t.Fatalf("%v, %v", got, err)
	}
	// Known names take no room.
	if got, gone, err = n.Store(abroadRun(tail(seq(1, 8), 0), 1)); err != nil || len(got.Hashes) != 8 || len(gone) > 0 || n.Len() != 8 {
		t.Errorf("again: %v, gone %v, %v; %d names", got, gone, err, n.Len())
	}
	// A name that now means another block: the old block is gone.
	other := Run{Hashes: r.Hashes[3:4], Locals: seq(70, 70)}
	if got, gone, err = n.Store(other); err != nil || len(gone) != 1 || gone[0] != chain(seq(1, 4))[3] || got.Hashes[0] != 70 {
		t.Errorf("%v, gone %v, %v", got, gone, err)
	}
	for _, tc := range []struct {
		run  Run
		want error
	}{
		{Run{Hashes: r.Hashes[:2], Locals: r.Locals[:1]}, ErrSequence},
		{Run{Hashes: []kv.BlockHash{5, 6, 5}, Locals: seq(1, 3)}, ErrSequence},
		{Run{Parent: r.Hashes[0], HasParent: true, Hashes: r.Hashes[:1], Locals: seq(1, 1)}, ErrSequence},
		{Run{Parent: 1234, HasParent: true, Hashes: r.Hashes[:1], Locals: seq(1, 1)}, ErrUnknownParent},
		{abroadRun(tail(seq(1, 9), 6), 2), ErrUnknownParent},
		{abroadRun(tail(seq(20, 22), 0), 2), ErrFull},
	} {
		if _, _, err := n.Store(tc.run); err != tc.want || n.Len() != 8 {
			t.Errorf("%v: %v, want %v; %d names", tc.run, err, tc.want, n.Len())
		}
	}
	if got := n.Remove([]kv.BlockHash{r.Hashes[1], 99, r.Hashes[3]}, nil); len(got) != 2 || got[0] != chain(seq(1, 2))[1] || got[1] != 70 || n.Len() != 6 {
		t.Errorf("%v", got)
	}
}

// translated is a sharded index with a Names per holder except the first.
type translated struct {
	*Sharded
	names [4]*Names
}

func (x *translated) Store(h kv.Rank, run Run) (int, error) {
	if h.Worker == 0 {
		return x.Sharded.Store(h, run)
	}
	run, gone, err := x.names[h.Worker].Store(run)
	if err != nil {
		return 0, err
	}
	x.Sharded.Remove(h, gone)
	return x.Sharded.Store(h, run)
}

func (x *translated) Remove(h kv.Rank, hashes []kv.BlockHash) int {
	if h.Worker > 0 {
		hashes = x.names[h.Worker].Remove(hashes, nil)
	}
	return x.Sharded.Remove(h, hashes)
}

// TestForeignHashes: workers with hashes of their own, each with another seed, and some with
// kv.Chain's share one sharded index: all find each other's blocks.
func TestForeignHashes(t *testing.T) {
	for _, shards := range []int{1, 3} {
		x := &translated{mustSharded(t, ShardedConfig{Shards: shards}), [4]*Names{nil, NewNames(0), NewNames(0), NewNames(0)}}
		p := &play{t: t, rng: rand.New(rand.NewPCG(5, 5)), longest: 9}
		oracle := naive{}
		for range 3000 {
			locals := p.sequence()
			h := w(p.rng.IntN(4))
			at := p.rng.IntN(len(locals))
			run := tail(locals, at)
			hashes := chain(locals)[at:]
			if h.Worker > 0 {
				run = abroadRun(run, uint64(h.Worker))
				hashes = abroad(hashes, uint64(h.Worker))
			}
			switch p.rng.IntN(12) {
			case 0:
				if h.Worker != 0 || p.rng.IntN(2) == 0 {
					x.Clear(h)
					x.names[h.Worker] = NewNames(0)
					delete(oracle, h)
				}
			case 1, 2, 3, 4:
				known := 0
				for i := range hashes {
					if oracle.remove(h, locals[:at+i+1]) {
						known++
					}
				}
				if got := x.Remove(h, hashes); got != known {
					t.Fatalf("%d removed, want %d", got, known)
				}
			default:
				_, err := x.Store(h, run)
				if ok := oracle.store(h, locals, at); ok != (err == nil) {
					t.Fatalf("%v, oracle %v", err, ok)
				}
			}
			probe := p.seqs[p.rng.IntN(len(p.seqs))]
			if got, want := found(t, x.Find(chain(probe), nil)), oracle.find(probe); !equal(got, want) {
				t.Fatalf("%v, want %v", got, want)
			}
		}
		if err := x.Check(); err != nil {
			t.Error(err)
		}
		// A name that now means another block: the old block is no longer there.
		for i := range 2 {
			locals := seq(100*i+11, 100*i+13)
			if _, err := x.Store(w(3), Run{Hashes: []kv.BlockHash{1, 2, 3}, Locals: locals}); err != nil {
				t.Fatal(err)
			}
		}
		if a, b := x.Find(chain(seq(11, 13)), nil), x.Find(chain(seq(111, 113)), nil); slices.Contains(a, Overlap{w(3), 3}) || !slices.Contains(b, Overlap{w(3), 3}) {
			t.Errorf("%v, %v", a, b)
		}
		// A holder with kv.Chain's hashes that then sends others is refused.
		if _, err := x.Store(w(0), tail(seq(1, 3), 0)); err != nil {
			t.Fatal(err)
		}
		if _, err := x.Store(w(0), abroadRun(tail(seq(1, 3), 0), 9)); err != ErrForeignHash {
			t.Error(err)
		}
	}
}
