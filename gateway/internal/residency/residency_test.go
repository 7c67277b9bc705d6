package residency

import (
	"errors"
	"maps"
	"slices"
	"testing"

	"github.com/coppice-llm/coppice/events"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/router"
	"github.com/coppice-llm/coppice/router/kvindex"
)

func mustNew(t testing.TB, cfg Config) *Residency {
	t.Helper()
	x, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// expect compares a rank's overlap with a prompt to the expected one.
func expect(t *testing.T, x *Residency, what string, r kv.Rank, locals []kv.LocalHash, want router.Overlap) {
	t.Helper()
	got := found(t, x.Find(chain(locals), nil))[r]
	if got.Worker = (kv.Rank{}); got != want {
		t.Errorf("%s: %+v, want %+v", what, got, want)
	}
	if err := x.Check(); err != nil {
		t.Errorf("%s: %v", what, err)
	}
}

// seq returns a prompt of its own.
func seq(number, blocks int) []kv.LocalHash {
	s := make([]kv.LocalHash, blocks)
	for i := range s {
		s[i] = kv.LocalHash(1000*number+i+1) * 0x9fb21c651e98df25
	}
	return s
}

// TestTiers is the life of one prompt: offloaded, evicted from the device in any order, brought
// back.
func TestTiers(t *testing.T) {
	x, r, p := mustNew(t, Config{}), kv.Rank{Worker: 1}, seq(1, 10)
	hashes := chain(p)
	store := func(from, to int, tier kv.Tier) {
		t.Helper()
		if err := x.Store(r, storedOf(p[:to], from, tier)); err != nil {
			t.Fatal(err)
		}
	}
	store(0, 8, kv.TierDevice)
	x.Remove(r, kv.TierHost, hashes) // it has no blocks there
	expect(t, x, "on the device", r, p, router.Overlap{Device: 8})
	if k := x.kinds(); k.tiered != 0 {
		t.Errorf("a table for nothing: %+v", k)
	}
	store(0, 6, kv.TierHost)
	expect(t, x, "a copy in host memory", r, p, router.Overlap{Device: 8})
	x.Remove(r, kv.TierDevice, hashes[3:5])
	expect(t, x, "a hole in the device", r, p, router.Overlap{Device: 3, Host: 5})
	store(5, 10, kv.TierDisk)
	x.Remove(r, kv.TierDevice, hashes[7:])
	expect(t, x, "the end on disk", r, p, router.Overlap{Device: 3, Host: 4, Disk: 3})
	if n := x.Held(r); n != 10 {
		t.Errorf("%d held", n)
	}
	store(3, 5, kv.TierDevice)
	expect(t, x, "the hole filled", r, p, router.Overlap{Device: 7, Disk: 3})
	x.Remove(r, kv.TierHost, hashes)
	x.Remove(r, kv.TierDevice, hashes[1:])
	expect(t, x, "a hole in all tiers", r, p, router.Overlap{Device: 1})
	if err := x.Store(r, storedOf(p[:5], 4, kv.TierHost)); err != events.ErrUnknownParent {
		t.Error(err)
	}
	if err := x.Store(r, storedOf(p[:9], 8, kv.TierHost)); err != nil {
		t.Errorf("below a block that is held behind the hole: %v", err)
	}
	store(1, 5, kv.TierHost)
	expect(t, x, "the hole filled from below", r, p, router.Overlap{Device: 1, Host: 4, Disk: 5})
	x.Clear(r)
	expect(t, x, "cleared", r, p, router.Overlap{})
	store(0, 4, kv.TierHost)
	expect(t, x, "in host memory alone", r, p, router.Overlap{Host: 4})
	x.Forget(r)
	expect(t, x, "forgotten", r, p, router.Overlap{})
	if k := x.kinds(); k != (kinds{}) || len(x.tiered.Load().ranks) != 0 || len(x.index.DumpHolder(r, nil)) != 0 {
		t.Errorf("%+v", k)
	}
}

// named returns a run with the names of one process.
func named(locals []kv.LocalHash, from int, tier kv.Tier, seed uint64) events.Stored {
	s := storedOf(locals, from, tier)
	s.Parent = name(s.Parent, seed)
	for i := range s.Blocks {
		s.Blocks[i].Hash = name(s.Blocks[i].Hash, seed)
	}
	return s
}

func namesOf(s events.Stored) (names []kv.BlockHash) {
	for _, b := range s.Blocks {
		names = append(names, b.Hash)
	}
	return names
}

// TestHashesOfTheirOwn: vLLM's hashes differ from process to process, so after a restart, seen
// as a dump or a clear, a worker's names are different.
func TestHashesOfTheirOwn(t *testing.T) {
	for _, lower := range []bool{false, true} {
		for _, anew := range []string{"dump", "clear", "forget"} {
			x, p := mustNew(t, Config{}), seq(1, 6)
			a, b := kv.Rank{Worker: 1}, kv.Rank{Worker: 1, DP: 1}
			store := func(r kv.Rank, s events.Stored) {
				t.Helper()
				if err := x.Store(r, s); err != nil {
					t.Fatal(err)
				}
			}
			for i, seed := range []uint64{11, 0, 12, 13, 0, 0, 14} {
				switch s := named(p, 0, kv.TierDevice, seed); anew {
				case "dump":
					if n := x.Replace(a, []events.Stored{s}); n != 0 {
						t.Errorf("%d refused", n)
					}
				case "clear":
					x.Clear(a)
					store(a, s)
				case "forget":
					x.Forget(a)
					store(a, s)
				}
				if i == 0 {
					store(b, named(p[:5], 0, kv.TierDevice, 99))
				}
				if lower {
					store(a, named(p, 2, kv.TierHost, seed))
				}
				what := anew + " of other hashes"
				expect(t, x, what, a, p, router.Overlap{Device: 6})
				x.Remove(a, kv.TierDevice, namesOf(named(p, 0, kv.TierDevice, seed+100))) // names of another process
				expect(t, x, what+", removed by others", a, p, router.Overlap{Device: 6})
				x.Remove(a, kv.TierDevice, namesOf(named(p, 3, kv.TierDevice, seed)))
				want := router.Overlap{Device: 3}
				if lower {
					want.Host = 3
				}
				expect(t, x, what+", removed", a, p, want)
				x.Remove(a, kv.TierHost, namesOf(named(p, 4, kv.TierHost, seed)))
				want.Host = min(want.Host, 1)
				expect(t, x, what+", removed below", a, p, want)
				expect(t, x, "the other rank", b, p, router.Overlap{Device: 5})
			}
			if k := x.rank(a); k.names.Len() > 6 {
				t.Errorf("%d names are left", k.names.Len())
			}
		}
	}
}

// TestSpoiledDump: in a dump in which one name stands for two blocks, the later one counts, as in a
// stream of events.
func TestSpoiledDump(t *testing.T) {
	x, r, p, q := mustNew(t, Config{}), kv.Rank{Worker: 1}, seq(1, 4), seq(2, 4)
	one, other := named(p, 0, kv.TierDevice, 5), named(q, 0, kv.TierDevice, 5)
	other.Blocks[2].Hash = one.Blocks[1].Hash
	if n := x.Replace(r, []events.Stored{one, other}); n != 0 {
		t.Errorf("%d orphans", n)
	}
	expect(t, x, "the first", r, p, router.Overlap{Device: 1})
	expect(t, x, "the second", r, q, router.Overlap{Device: 4})
	if s := x.Stats(); s.InvalidBlocks != 0 || x.kinds().lossy != 0 || x.Check() != nil {
		t.Errorf("%v, %v", s, x.Check())
	}
}

// TestLimits: at each limit, one below and one above.
func TestLimits(t *testing.T) {
	cfg := Config{Index: kvindex.ShardedConfig{Shards: 4, Config: kvindex.Config{HolderBlocks: 10, Holders: 3}}, TierBlocks: 5}
	for _, tc := range []struct {
		tier   kv.Tier
		blocks int
		held   int
	}{{kv.TierDevice, 9, 9}, {kv.TierDevice, 10, 10}, {kv.TierDevice, 11, 0}, {kv.TierHost, 4, 4}, {kv.TierHost, 5, 5}, {kv.TierDisk, 6, 5}} {
		x, r := mustNew(t, cfg), kv.Rank{Worker: 1}
		for _, dump := range []bool{false, true} {
			s := storedOf(seq(1, tc.blocks), 0, tc.tier)
			if dump {
				x.Replace(r, []events.Stored{s})
			} else if err := x.Store(r, s); err != nil {
				t.Error(err)
			}
			if n := x.Held(r); n != tc.held || x.Check() != nil {
				t.Errorf("%v: %d of %d blocks held, want %d; dump: %v; %v", tc.tier, n, tc.blocks, tc.held, dump, x.Check())
			}
			if lossy := x.kinds().lossy == 1; lossy != (tc.held < tc.blocks) {
				t.Errorf("%v: %d blocks: lossy %v", tc.tier, tc.blocks, lossy)
			}
		}
	}
	// Repeated blocks take no room, so lost events are still detected at the limit.
	x, r := mustNew(t, cfg), kv.Rank{Worker: 1}
	for range 2 {
		if err := x.Store(r, storedOf(seq(1, 10), 0, kv.TierDevice)); err != nil {
			t.Error(err)
		}
	}
	if err := x.Store(r, storedOf(seq(3, 3), 2, kv.TierDevice)); err != events.ErrUnknownParent || x.Held(r) != 10 {
		t.Errorf("again at the limit, then of an unknown parent: %v\n%v", err, x.Stats())
	}
	// The limit of a rank covers blocks in all shards.
	x = mustNew(t, cfg)
	for i := range 40 {
		if err := x.Store(kv.Rank{Worker: 1}, storedOf(seq(i, 1), 0, kv.TierDevice)); err != nil {
			t.Error(err)
		}
	}
	if n := x.Held(kv.Rank{Worker: 1}); n != 10 || x.Stats().OverfullBlocks != 30 {
		t.Errorf("%d held\n%v", n, x.Stats())
	}
	for i := range 5 {
		for range 2 {
			_ = x.Store(kv.Rank{Worker: kv.WorkerID(i)}, storedOf(seq(50+i, 2), 0, kv.TierDevice))
		}
	}
	x.Replace(kv.Rank{Worker: 9}, []events.Stored{storedOf(seq(9, 2), 0, kv.TierDevice)})
	if k := x.kinds(); k.ranks != 3 {
		t.Errorf("%+v", k)
	}
	// Rank numbers with the shadow bit are refused.
	x = mustNew(t, cfg)
	s := storedOf(seq(9, 2), 0, kv.TierDevice)
	x.Replace(kv.Rank{Worker: 1, DP: shadowBit}, []events.Stored{s})
	if err := x.Store(kv.Rank{Worker: 1, DP: shadowBit + 1}, s); err != nil || x.kinds().ranks != 0 || x.Stats().OverfullBlocks != 4 {
		t.Errorf("%v\n%v", err, x.Stats())
	}
}

// TestFloodsLeaveRoomForOthers: with default limits, floods by all other workers leave the last
// one its room; with Blocks below Holders*HolderBlocks they do not.
func TestFloodsLeaveRoomForOthers(t *testing.T) {
	if c := (Config{}).WithDefaults(); c.Index.Holders*c.Index.HolderBlocks > c.Index.Blocks {
		t.Errorf("%+v", c)
	}
	for _, tc := range []struct {
		limits kvindex.Config
		late   int // blocks of the last worker
	}{
		{kvindex.Config{Holders: 4, HolderBlocks: 32}, 32},
		{kvindex.Config{Holders: 4, Blocks: 32}, 8},
		{kvindex.Config{Holders: 4, HolderBlocks: 32, Blocks: 96}, 0},
	} {
		x := mustNew(t, Config{Index: kvindex.ShardedConfig{Shards: 1, Config: tc.limits}})
		for w := range 4 {
			for i := range 100 {
				if err := x.Store(kv.Rank{Worker: kv.WorkerID(w)}, storedOf(seq(1000*w+i, 4), 0, kv.TierDevice)); err != nil {
					t.Fatal(err)
				}
			}
		}
		if n := x.Held(kv.Rank{Worker: 3}); n != tc.late {
			t.Errorf("%+v: room for %d blocks, want %d\n%v", tc.limits, n, tc.late, x.Stats())
		}
	}
}

// TestLongRuns: a run applied in parts gives the same result as at once.
func TestLongRuns(t *testing.T) {
	for _, seed := range []uint64{0, 3} {
		x, r, p := mustNew(t, Config{}), kv.Rank{Worker: 1}, seq(1, 2*maxPart+10)
		for i, tier := range []kv.Tier{kv.TierDevice, kv.TierHost} {
			s := named(p, 0, tier, seed)
			if err := x.Store(r, s); err != nil {
				t.Fatal(err)
			}
			expect(t, x, "stored", r, p, router.Overlap{Device: len(p)})
			x.Remove(r, kv.TierDevice, namesOf(s)[5:])
			expect(t, x, "removed", r, p, router.Overlap{Device: 5, Host: i * (len(p) - 5)})
			if err := x.Store(r, s); err != nil {
				t.Fatal(err)
			}
			x.Remove(r, kv.TierDevice, nil)
			if tier == kv.TierDevice {
				continue
			}
			expect(t, x, "on the host", r, p, router.Overlap{Device: 5, Host: len(p) - 5})
			x.Remove(r, kv.TierHost, namesOf(s)[maxPart+1:])
			expect(t, x, "some of it", r, p, router.Overlap{Device: 5, Host: maxPart - 4})
		}
	}
	if err := mustNew(t, Config{}).Store(kv.Rank{}, storedOf(seq(1, 3*maxPart), 1, kv.TierHost)); err != events.ErrUnknownParent {
		t.Error(err)
	}
}

func TestConfig(t *testing.T) {
	for _, cfg := range []Config{
		{TierBlocks: -1}, {TierBlocks: kvindex.MaxBlocks + 1},
		{Index: kvindex.ShardedConfig{Config: kvindex.Config{Holders: kvindex.MaxHolders/2 + 1}}},
	} {
		if _, err := New(cfg); !errors.Is(err, ErrConfig) {
			t.Errorf("%+v: %v", cfg, err)
		}
	}
	for _, cfg := range []Config{
		{Index: kvindex.ShardedConfig{Shards: -1}},
		{Index: kvindex.ShardedConfig{Config: kvindex.Config{Holders: -1}}},
		{Index: kvindex.ShardedConfig{Config: kvindex.Config{Holders: 1 << 62, HolderBlocks: 1 << 62}}},
	} {
		if _, err := New(cfg); !errors.Is(err, kvindex.ErrConfig) {
			t.Errorf("%+v: %v", cfg, err)
		}
	}
	if c := (Config{Index: kvindex.ShardedConfig{Config: kvindex.Config{Blocks: 100, Holders: 7}}}).WithDefaults(); c.Index.HolderBlocks != 14 {
		t.Errorf("%+v", c)
	}
	mustNew(t, Config{TierBlocks: kvindex.MaxBlocks, Index: kvindex.ShardedConfig{Config: kvindex.Config{Holders: kvindex.MaxHolders / 2, HolderBlocks: kvindex.MaxBlocks}}})
}

// TestFindAllocatesNothing: with and without lower tiers.
func TestFindAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("under the race detector a sync.Pool loses what it is given")
	}
	for _, tier := range []kv.Tier{kv.TierDevice, kv.TierDisk} {
		x, p := mustNew(t, Config{}), seq(1, 100)
		hashes := chain(p)
		for w := range 8 {
			_ = x.Store(kv.Rank{Worker: kv.WorkerID(w)}, storedOf(p[:50], 0, kv.TierDevice))
			if err := x.Store(kv.Rank{Worker: kv.WorkerID(w)}, storedOf(p, 50, tier)); err != nil {
				t.Fatal(err)
			}
		}
		dst := make([]router.Overlap, 0, 8)
		if n := testing.AllocsPerRun(1000, func() { dst = x.Find(hashes, dst[:0]) }); n != 0 || len(dst) != 8 || dst[3].Blocks() != 100 {
			t.Errorf("%v: %v allocations, %v", tier, n, dst)
		}
	}
}

// kinds counts the known ranks, those that have named a lower tier, those of which blocks were refused, and
// those with hashes of their own.
type kinds struct{ ranks, tiered, lossy, foreign int }

func (x *Residency) kinds() (n kinds) {
	for _, k := range x.all() {
		k.mu.RLock()
		n.ranks++
		for of, is := range map[*int]bool{&n.tiered: k.tiers != nil, &n.lossy: k.lossy, &n.foreign: k.names != nil} {
			if is {
				*of++
			}
		}
		k.mu.RUnlock()
	}
	return n
}

func (x *Residency) all() []*rank {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return slices.Collect(maps.Values(x.ranks))
}

// TestHeldWaitsForNoChange: Held and Stats return while ranks are being changed.
func TestHeldWaitsForNoChange(t *testing.T) {
	x := mustNew(t, Config{})
	plain, tiered := kv.Rank{Worker: 1}, kv.Rank{Worker: 2}
	store := func(r kv.Rank, s events.Stored) {
		t.Helper()
		if err := x.Store(r, s); err != nil {
			t.Fatal(err)
		}
	}
	store(plain, storedOf(seq(1, 5), 0, kv.TierDevice))
	store(tiered, storedOf(seq(1, 5), 0, kv.TierDevice))
	store(tiered, storedOf(seq(1, 8), 3, kv.TierHost))
	for _, k := range x.all() {
		k.changing.Lock()
		k.mu.Lock()
	}
	if a, b := x.Held(plain), x.Held(tiered); a != 5 || b != 8 {
		t.Errorf("%d and %d blocks, want 5 and 8", a, b)
	}
	if s := x.Stats(); s != (Stats{}) {
		t.Errorf("%+v", s)
	}
	for _, k := range x.all() {
		k.mu.Unlock()
		k.changing.Unlock()
	}
	x.Clear(tiered)
	x.Forget(plain)
	if a, b := x.Held(plain), x.Held(tiered); a != 0 || b != 0 {
		t.Errorf("%d and %d blocks are left", a, b)
	}
	if err := x.Check(); err != nil {
		t.Error(err)
	}
}
