package residency

import (
	"fmt"
	"testing"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/router"
	"github.com/coppice-llm/coppice/router/kvindex"
)

// workers makes an index of ten workers, each with ten prompts of a hundred blocks.
func workers(t testing.TB, cfg Config) (x *Residency, all [][]kv.LocalHash) {
	t.Helper()
	x, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		all = append(all, seq(i+1, 100))
		if err := x.Store(kv.Rank{Worker: kv.WorkerID(1 + i/10)}, storedOf(all[i], 0, kv.TierDevice)); err != nil {
			t.Fatal(err)
		}
	}
	return x, all
}

// kept returns the number of departed ranks, and of their blocks.
func (x *Residency) kept() (ranks, blocks int) {
	for _, h := range x.departed.shadows {
		blocks += x.index.Held(h)
	}
	return len(x.departed.shadows), blocks
}

// TestDeparted: what a forgotten rank had is found no more, and stays in the index until another rank has it, or there is too
// much of it.
func TestDeparted(t *testing.T) {
	x, all := workers(t, Config{})
	gone, other := kv.Rank{Worker: 1}, kv.Rank{Worker: 2}
	x.Forget(gone)
	expect(t, x, "forgotten", gone, all[0], router.Overlap{})
	if ranks, blocks := x.kept(); ranks != 1 || blocks != 1000 || x.Held(gone) != 0 {
		t.Errorf("%d blocks of %d departed ranks are kept, want 1000 of 1; the rank has %d", blocks, ranks, x.Held(gone))
	}
	for i := range 10 {
		if err := x.Store(other, storedOf(all[i], 0, kv.TierDevice)); err != nil {
			t.Fatal(err)
		}
		expect(t, x, "at another rank", other, all[i], router.Overlap{Device: 100})
	}
	if x.Held(other) != 2000 {
		t.Errorf("the other rank has %d blocks", x.Held(other))
	}
	x.dropDeparted()
	expect(t, x, "after the shadow went", other, all[0], router.Overlap{Device: 100})
	for w := range 8 {
		x.Forget(kv.Rank{Worker: kv.WorkerID(3 + w)})
		known := 2000 + 1000*(7-w)
		if _, blocks := x.kept(); blocks > known/departedShare {
			t.Errorf("%d blocks of departed ranks are kept beside %d", blocks, known)
		}
	}
	x.Forget(other)
	if ranks, blocks := x.kept(); ranks != 0 || blocks != 0 {
		t.Errorf("of a fleet without workers %d blocks of %d ranks are kept", blocks, ranks)
	}
	if err := x.Check(); err != nil {
		t.Error(err)
	}
}

// TestDepartedMakeRoom: departed ranks take no room from those that are there.
func TestDepartedMakeRoom(t *testing.T) {
	small := kvindex.Config{Holders: 10, HolderBlocks: 1000, Blocks: 10_000}
	x, all := workers(t, Config{Index: kvindex.ShardedConfig{Config: small, Shards: 1}})
	gone := kv.Rank{Worker: 1}
	x.Forget(gone)
	if ranks, _ := x.kept(); ranks != 1 {
		t.Fatal("nothing is kept: nothing is shown")
	}
	fresh := seq(1000, 100)
	if err := x.Store(gone, storedOf(fresh, 0, kv.TierDevice)); err != nil {
		t.Fatal(err)
	}
	expect(t, x, "in a full index", gone, fresh, router.Overlap{Device: 100})
	if ranks, _ := x.kept(); ranks != 0 || x.Stats() != (Stats{}) {
		t.Errorf("%d departed ranks are kept, %+v", ranks, x.Stats())
	}
	expect(t, x, "forgotten", kv.Rank{Worker: 1}, all[0], router.Overlap{})
	if err := x.Check(); err != nil {
		t.Error(err)
	}
}

// BenchmarkStoreDeparted stores prompts of 6,250 blocks at a rank: new ones, and those of a rank that has just departed.
func BenchmarkStoreDeparted(b *testing.B) {
	for _, departed := range []bool{false, true} {
		b.Run(fmt.Sprintf("departed=%v", departed), func(b *testing.B) {
			x, err := New(Config{})
			if err != nil {
				b.Fatal(err)
			}
			const prompts = 64
			at := kv.WorkerID(1)
			for i := range prompts * 8 { // other ranks hold more, so that what departs is within its share
				x.Store(kv.Rank{Worker: kv.WorkerID(1<<20 + i/50)}, storedOf(seq(10*(1<<16+i), 6250), 0, kv.TierDevice))
			}
			b.ResetTimer()
			for n := 0; n < b.N; n++ {
				if n%prompts == 0 {
					b.StopTimer()
					x.Forget(kv.Rank{Worker: at})
					at++
					if !departed {
						for x.dropDeparted() {
						}
					}
					b.StartTimer()
				}
				b.StopTimer()
				s := storedOf(seq(10*(n%prompts+1), 6250), 0, kv.TierDevice)
				b.StartTimer()
				if err := x.Store(kv.Rank{Worker: at}, s); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
