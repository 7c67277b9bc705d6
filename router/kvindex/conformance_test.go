package kvindex

import (
	"errors"
	"maps"
	"slices"
	"testing"

	"github.com/coppice-llm/coppice/kv"
)

// tree is the interface common to all variants.
type tree interface {
	Store(kv.Rank, Run) (int, error)
	Remove(kv.Rank, []kv.BlockHash) int
	Clear(kv.Rank)
	Forget(kv.Rank)
	Find([]kv.BlockHash, []Overlap) []Overlap
	Held(kv.Rank) int
	Holders() []kv.Rank
	DumpHolder(kv.Rank, []Run) []Run
	Stats() Stats
	Check() error
}

// Holders returns the known holders, ascending. A cleared holder stays known, a forgotten one does not.
func (x *Index) Holders() []kv.Rank {
	return slices.SortedFunc(maps.Keys(x.holders.slots), kv.Rank.Compare)
}

func (s *Sharded) Holders() (all []kv.Rank) {
	s.readEach(func(x *Index) { all = append(all, x.Holders()...) })
	slices.SortFunc(all, kv.Rank.Compare)
	return slices.Compact(all)
}

// Stats returns the sum over the shards.
func (s *Sharded) Stats() (sum Stats) {
	s.readEach(func(x *Index) {
		st := x.Stats()
		sum.Nodes += st.Nodes
		sum.Blocks += st.Blocks
		sum.HolderBlocks += st.HolderBlocks
		sum.RemovedBlocks += st.RemovedBlocks
	})
	return sum
}

// variants runs a test on each variant.
func variants(t *testing.T, cfg Config, test func(t *testing.T, x tree)) {
	t.Helper()
	plain := func() tree {
		x, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	sharded := func(shards int) tree {
		x, err := NewSharded(ShardedConfig{Config: cfg, Shards: shards})
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	for name, x := range map[string]tree{
		"index": plain(), "one shard": sharded(1), "four shards": sharded(4),
	} {
		t.Run(name, func(t *testing.T) {
			test(t, x)
			if err := x.Check(); err != nil {
				t.Error(err)
			}
		})
	}
}

func seq(lo, hi int) []kv.LocalHash { // [lo, hi]
	var s []kv.LocalHash
	for i := lo; i <= hi; i++ {
		s = append(s, kv.LocalHash(i))
	}
	return s
}

func w(id int) kv.Rank { return kv.Rank{Worker: kv.WorkerID(id)} }

// desk is one variant under test.
type desk struct {
	t *testing.T
	x tree
}

func (d desk) store(h kv.Rank, locals []kv.LocalHash, from int) {
	d.t.Helper()
	if _, err := d.x.Store(h, tail(locals, from)); err != nil {
		d.t.Fatalf("store %v of %d from %d: %v", h, len(locals), from, err)
	}
}

func (d desk) want(locals []kv.LocalHash, want map[kv.Rank]uint32) {
	d.t.Helper()
	if got := found(d.t, d.x.Find(chain(locals), nil)); !equal(got, want) {
		d.t.Errorf("find of %d blocks: %v, want %v", len(locals), got, want)
	}
}

type overlaps = map[kv.Rank]uint32

// TestConformance, TestClearAndForget and TestLongSequences have the cases of Dynamo's own
// tests. Clearing affects one rank, as there since 2026-08.
func TestConformance(t *testing.T) {
	variants(t, Config{}, func(t *testing.T, x tree) {
		d := desk{t, x}
		d.want(nil, nil)
		d.want(seq(1, 3), nil)
		d.store(w(0), seq(1, 3), 0)
		d.want(seq(1, 3), overlaps{w(0): 3})
		d.want([]kv.LocalHash{1, 2, 999}, overlaps{w(0): 2})
		branch := []kv.LocalHash{1, 4, 5}
		d.store(w(1), branch, 0)                      //
		d.want(seq(1, 3), overlaps{w(0): 3, w(1): 1}) //
		if x.Remove(w(1), chain(branch)[2:]) != 1 || x.Held(w(1)) != 2 {
			t.Errorf("worker 1 has %d blocks", x.Held(w(1)))
		}
		x.Remove(w(1), chain(branch)[1:2])
		d.want(branch, overlaps{w(0): 1, w(1): 1})

		r := tail(seq(7, 9), 0)
		r.Parent, r.HasParent = 12345, true
		if _, err := x.Store(w(0), r); err != ErrUnknownParent {
			t.Errorf("unknown parent: %v", err)
		}
		r.Parent = chain(seq(1, 1))[0]
		r.Hashes = append([]kv.BlockHash{r.Parent}, r.Hashes[1:]...)
		if _, err := x.Store(w(0), r); err != ErrSequence {
			t.Errorf("its own parent: %v", err)
		}
		if _, err := x.Store(w(5), tail(seq(1, 3), 2)); err != ErrUnknownParent { // another holder's parent
			t.Errorf("parent of another worker: %v", err)
		}
		if x.Remove(w(999), chain(seq(1, 3))) != 0 || x.Remove(w(0), []kv.BlockHash{77}) != 0 {
			t.Error("unknown blocks removed")
		}
		x.Clear(w(999))
		if hs := x.Holders(); !slices.Equal(hs, []kv.Rank{w(0), w(1)}) {
			t.Errorf("holders %v", hs)
		}
		if st := x.Stats(); st.RemovedBlocks != 2 || st.HolderBlocks != 4 {
			t.Errorf("stats %+v", st)
		}
	})
}

func TestClearAndForget(t *testing.T) {
	variants(t, Config{}, func(t *testing.T, x tree) {
		d := desk{t, x}
		a, b := []kv.LocalHash{10, 1, 3}, []kv.LocalHash{10, 2, 3}
		d.store(w(0), a, 0)
		d.store(w(1), b, 0)
		x.Clear(w(0))
		x.Clear(w(0))
		d.want(a, overlaps{w(1): 1})
		if hs := x.Holders(); len(hs) != 2 || x.Held(w(0)) != 0 {
			t.Errorf("holders %v", hs)
		}
		d.store(w(0), seq(4, 5), 0)
		d.want(seq(4, 5), overlaps{w(0): 2})
		d.store(w(0), b, 0)
		x.Forget(w(0))
		d.want(b, overlaps{w(1): 3})
		if hs := x.Holders(); !slices.Equal(hs, []kv.Rank{w(1)}) {
			t.Errorf("holders %v", hs)
		}
		for rank := range uint32(3) {
			d.store(kv.Rank{Worker: 2, DP: rank}, a, 0)
		}
		x.Clear(kv.Rank{Worker: 2, DP: 1})
		d.want(a, overlaps{w(1): 1, {Worker: 2}: 3, {Worker: 2, DP: 2}: 3})
		for rank := range uint32(3) {
			x.Forget(kv.Rank{Worker: 2, DP: rank})
		}
		x.Forget(w(1))
		if st := x.Stats(); st.Nodes != 0 || st.Blocks != 0 || st.HolderBlocks != 0 || len(x.Holders()) != 0 {
			t.Errorf("left: %+v, holders %v", st, x.Holders())
		}
	})
}

func TestLongSequences(t *testing.T) {
	variants(t, Config{}, func(t *testing.T, x tree) {
		d := desk{t, x}
		long := seq(1, 5000)
		for at := 0; at < 5000; at += 10 {
			d.store(w(0), long[:at+10], at)
		}
		d.want(long, overlaps{w(0): 5000})
		d.want(long[:75], overlaps{w(0): 75})
		d.want(seq(45, 105), nil)
		other := slices.Clone(long)
		other[499] = 1 << 40
		d.want(other, overlaps{w(0): 499})
		d.store(w(1), other, 0)
		d.want(other, overlaps{w(0): 499, w(1): 5000})
		x.Remove(w(0), chain(long)[4980:])
		d.want(long, overlaps{w(0): 4980, w(1): 499})
		x.Remove(w(1), chain(other)[499:500]) // with all blocks after it
		d.want(other, overlaps{w(0): 499, w(1): 499})
		x.Remove(w(0), chain(long)[:1])
		if st := x.Stats(); st.Nodes != 1 || st.Blocks != 499 || x.Held(w(0)) != 0 {
			t.Errorf("%+v", st)
		}
		for i := range 10 {
			d.store(w(10+i), long[:1<<i], 0)
		}
		want := overlaps{w(1): 499}
		for i := range 10 {
			want[w(10+i)] = 1 << i
		}
		d.want(long, want)
	})
}

func TestApply(t *testing.T) {
	x, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	d := desk{t, x}
	h := chain(seq(1, 3))
	var blocks []kv.Block
	for i := range h {
		blocks = append(blocks, kv.Block{Hash: h[i], Local: kv.LocalHash(i + 1)})
	}
	for _, e := range []kv.Event{
		{Kind: kv.Stored, Blocks: blocks[:2]},
		{Kind: kv.Stored, Parent: h[1], HasParent: true, Blocks: blocks[2:]},
		{Kind: kv.Removed, Hashes: h[1:]},
		{Kind: kv.Stored, Parent: h[0], HasParent: true, Blocks: blocks[1:2]},
	} {
		if err := x.Apply(w(3), e); err != nil {
			t.Fatal(err)
		}
	}
	d.want(seq(1, 3), overlaps{w(3): 2})
	if err := x.Apply(w(3), kv.Event{Kind: kv.Cleared}); err != nil {
		t.Fatal(err)
	}
	d.want(seq(1, 3), nil)
}

func TestConfig(t *testing.T) {
	for _, bad := range []Config{{Blocks: -1}, {Blocks: MaxBlocks + 1}, {HolderBlocks: -1}, {Holders: MaxHolders + 1}} {
		if _, err := New(bad); !errors.Is(err, ErrConfig) {
			t.Errorf("%+v: %v", bad, err)
		}
		if _, err := NewSharded(ShardedConfig{Config: bad}); !errors.Is(err, ErrConfig) {
			t.Errorf("sharded %+v: %v", bad, err)
		}
	}
	for _, bad := range []ShardedConfig{{Shards: -1}, {Shards: MaxShards + 1}} {
		if _, err := NewSharded(bad); !errors.Is(err, ErrConfig) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}
