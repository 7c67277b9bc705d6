package kvindex

import (
	"testing"

	"github.com/coppice-llm/coppice/kv"
)

var bothCuts = []ShardedConfig{{Shards: 3}, {Shards: 3, By: ByWorker}}

func mustSharded(t *testing.T, cfg ShardedConfig) *Sharded {
	t.Helper()
	s, err := NewSharded(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A name that stands in two runs of a dump means the second one's block; what the
// first one meant could never be removed.
func TestReplaceWithANameTwice(t *testing.T) {
	for _, cfg := range bothCuts {
		s := mustSharded(t, cfg)
		one, other := seq(1, 4), seq(50, 52)
		first := abroadRun(tail(one, 0), 1)
		second := Run{Hashes: []kv.BlockHash{first.Hashes[2], 77, 78}, Locals: other}
		if err := s.Replace(w(1), []Run{first, second}); err != nil {
			t.Fatal(err)
		}
		if a, b := found(t, s.Find(one, nil))[w(1)], found(t, s.Find(other, nil))[w(1)]; a != 2 || b != 3 {
			t.Errorf("%v: %d and %d blocks, want 2 and 3", cfg.By, a, b)
		}
		s.Remove(w(1), append([]kv.BlockHash{77, 78}, first.Hashes...))
		if n := s.Held(w(1)); n != 0 {
			t.Errorf("%v: %d blocks are left", cfg.By, n)
		}
	}
}

// One bad run of a dump does not cost the others.
func TestReplaceLeavesOutWhatIsRefused(t *testing.T) {
	for _, cfg := range bothCuts {
		s := mustSharded(t, cfg)
		one, other := seq(1, 4), seq(50, 52)
		bad := tail(seq(9, 12), 0)
		bad.Hashes[2]++
		if err := s.Replace(w(1), []Run{tail(one, 0), tail(seq(70, 79), 5), bad, tail(other, 0)}); err != ErrUnknownParent {
			t.Error(err)
		}
		if a, b := found(t, s.Find(one, nil))[w(1)], found(t, s.Find(other, nil))[w(1)]; a != 4 || b != 3 || s.Held(w(1)) != 7 {
			t.Errorf("%v: %d and %d blocks of %d", cfg.By, a, b, s.Held(w(1)))
		}
		if st := s.Stats(); st.Orphans != 1 || st.Foreign != 1 {
			t.Errorf("%+v", st)
		}
	}
}

// A holder is forgotten, the other ranks of its worker are not.
func TestForgetOneRank(t *testing.T) {
	for _, cfg := range bothCuts {
		s := mustSharded(t, cfg)
		a, b := kv.Rank{Worker: 1}, kv.Rank{Worker: 1, DP: 1}
		for _, h := range []kv.Rank{a, b} {
			if _, err := s.Store(h, abroadRun(tail(seq(1, 4), 0), 1)); err != nil {
				t.Fatal(err)
			}
		}
		s.Forget(a)
		if s.Held(a) != 0 || s.Held(b) != 4 || len(s.Holders(nil)) != 1 || len(s.names) != 1 {
			t.Errorf("%v: %d and %d blocks, holders %v, %d with names", cfg.By, s.Held(a), s.Held(b), s.Holders(nil), len(s.names))
		}
		chained := chain(seq(1, 4))
		if s.Holds(a, chained[0]) || !s.Holds(b, chained[3]) {
			t.Errorf("%v: Holds", cfg.By)
		}
		if dump := s.DumpHolder(b, nil); len(dump) != 1 || dump[0].Holder != b || len(dump[0].Run.Hashes) != 4 || len(s.DumpHolder(a, nil)) != 0 {
			t.Errorf("%v: dump %v", cfg.By, dump)
		}
		s.Forget(b)
		if len(s.Holders(nil)) != 0 || len(s.names) != 0 {
			t.Errorf("%v: holders %v, %d with names", cfg.By, s.Holders(nil), len(s.names))
		}
	}
}

// Who translates for himself is told where he does not.
func TestChained(t *testing.T) {
	s := mustSharded(t, ShardedConfig{Chained: true})
	foreign := abroadRun(tail(seq(1, 4), 0), 1)
	if _, err := s.Store(w(1), foreign); err != ErrForeignHash {
		t.Error(err)
	}
	if err := s.Replace(w(1), []Run{foreign, tail(seq(1, 3), 0)}); err != ErrForeignHash || s.Held(w(1)) != 3 {
		t.Errorf("%v, %d held", err, s.Held(w(1)))
	}
	names := NewNames(0)
	if _, _, err := names.Store(foreign); err != nil {
		t.Fatal(err)
	}
	if hash, ok := names.Hash(foreign.Hashes[3]); !ok || hash != chain(seq(1, 4))[3] {
		t.Errorf("%x, %v", hash, ok)
	}
	if _, ok := names.Hash(5); ok {
		t.Error("a name that nobody gave")
	}
}

// Two ranks change places, with their names, whether known or not.
func TestSwap(t *testing.T) {
	for _, cfg := range bothCuts {
		s := mustSharded(t, cfg)
		a, b := kv.Rank{Worker: 1}, kv.Rank{Worker: 1, DP: 1}
		want := func(what string, atA, atB uint32) {
			t.Helper()
			got := found(t, s.Find(seq(1, 6), nil))
			if got[a] != atA || got[b] != atB || s.Held(a) != int(atA) || s.Held(b) != int(atB) || s.Check() != nil {
				t.Errorf("%v, %s: %v, held %d and %d, %v", cfg.By, what, got, s.Held(a), s.Held(b), s.Check())
			}
		}
		s.Swap(a, b)
		want("nobody is known", 0, 0)
		foreign := abroadRun(tail(seq(1, 4), 0), 1)
		if _, err := s.Store(a, foreign); err != nil {
			t.Fatal(err)
		}
		s.Swap(a, b)
		want("one is known", 0, 4)
		if _, err := s.Store(a, tail(seq(1, 6), 0)); err != nil {
			t.Fatal(err)
		}
		s.Swap(a, b)
		want("both are known", 4, 6)
		s.Remove(a, foreign.Hashes[1:])
		s.Remove(b, chain(seq(1, 6))[2:])
		want("each by its own hashes", 1, 2)
		s.Swap(a, a)
		want("with itself", 1, 2)
	}
}
