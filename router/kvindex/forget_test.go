package kvindex

import (
	"testing"

	"github.com/coppice-llm/coppice/kv"
)

var oneAndThree = []ShardedConfig{{Shards: 1}, {Shards: 3}}

func mustSharded(t *testing.T, cfg ShardedConfig) *Sharded {
	t.Helper()
	s, err := NewSharded(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestForgetOneRank: one rank is forgotten, the other ranks of its worker stay.
func TestForgetOneRank(t *testing.T) {
	for _, cfg := range oneAndThree {
		s := mustSharded(t, cfg)
		a, b := kv.Rank{Worker: 1}, kv.Rank{Worker: 1, DP: 1}
		for _, h := range []kv.Rank{a, b} {
			if _, err := s.Store(h, tail(seq(1, 4), 0)); err != nil {
				t.Fatal(err)
			}
		}
		s.Forget(a)
		if s.Held(a) != 0 || s.Held(b) != 4 || len(s.Holders()) != 1 {
			t.Errorf("%d shards: %d and %d blocks, holders %v", cfg.Shards, s.Held(a), s.Held(b), s.Holders())
		}
		chained := chain(seq(1, 4))
		if s.Holds(a, chained[0]) || !s.Holds(b, chained[3]) {
			t.Errorf("%d shards: Holds", cfg.Shards)
		}
		if dump := s.DumpHolder(b, nil); len(dump) != 1 || len(dump[0].Hashes) != 4 || len(s.DumpHolder(a, nil)) != 0 {
			t.Errorf("%d shards: dump %v", cfg.Shards, dump)
		}
		s.Forget(b)
		if len(s.Holders()) != 0 {
			t.Errorf("%d shards: holders %v", cfg.Shards, s.Holders())
		}
	}
}

// TestHand: a holder's blocks are another one's, and it is unknown itself.
func TestHand(t *testing.T) {
	for _, cfg := range oneAndThree {
		s := mustSharded(t, cfg)
		from, to := w(1), w(2)
		for lo := 1; lo < 100; lo += 10 { // in several shards
			if _, err := s.Store(from, tail(seq(lo, lo+3), 0)); err != nil {
				t.Fatal(err)
			}
		}
		if !s.Hand(from, to) || s.Held(from) != 0 || s.Held(to) != 40 || len(s.Holders()) != 1 {
			t.Errorf("%d shards: %d and %d blocks, holders %v", cfg.Shards, s.Held(from), s.Held(to), s.Holders())
		}
		for lo := 1; lo < 100; lo += 10 {
			if found := s.Find(chain(seq(lo, lo+3)), nil); len(found) != 1 || found[0] != (Overlap{to, 4}) {
				t.Errorf("%d shards: found %v", cfg.Shards, found)
			}
		}
		if s.Hand(from, w(3)) || s.Held(w(3)) != 0 || len(s.Holders()) != 1 {
			t.Errorf("%d shards: an unknown holder had blocks; holders %v", cfg.Shards, s.Holders())
		}
		if err := s.Check(); err != nil {
			t.Error(err)
		}
	}
}
