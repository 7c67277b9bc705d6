package residency

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/coppice-llm/coppice/events"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/router"
	"github.com/coppice-llm/coppice/router/kvindex"
)

// prompts are about 220 blocks after one of 64 prefixes.
func prompts(n int) [][]kv.LocalHash {
	rng := rand.New(rand.NewPCG(1, 1))
	fresh := func(n int) []kv.LocalHash {
		s := make([]kv.LocalHash, n)
		for i := range s {
			s[i] = kv.LocalHash(rng.Uint64())
		}
		return s
	}
	var stems, all [][]kv.LocalHash
	for range 64 {
		stems = append(stems, fresh(30+rng.IntN(100)))
	}
	for range n {
		all = append(all, append(append([]kv.LocalHash(nil), stems[rng.IntN(64)]...), fresh(60+rng.IntN(200))...))
	}
	return all
}

func storedOf(locals []kv.LocalHash, from int, tier kv.Tier) events.Stored {
	hashes := chain(locals)
	s := events.Stored{Tier: tier}
	if from > 0 {
		s.Parent, s.HasParent = hashes[from-1], true
	}
	for i := from; i < len(locals); i++ {
		s.Blocks = append(s.Blocks, events.Block{Hash: hashes[i], Local: locals[i]})
	}
	return s
}

func runWhole(locals []kv.LocalHash) kvindex.Run {
	return kvindex.Run{Hashes: chain(locals), Locals: locals}
}

// BenchmarkFind measures a lookup among 64 workers, in the bare index and in a Residency:
// without lower tiers, and with the last half of all prompts in host memory.
func BenchmarkFind(b *testing.B) {
	const workers = 64
	all := prompts(2000)
	var hashes [][]kv.BlockHash
	for _, p := range all {
		hashes = append(hashes, chain(p))
	}
	rng := rand.New(rand.NewPCG(1, 2))
	bare, _ := kvindex.NewSharded(kvindex.ShardedConfig{})
	plain, _ := New(Config{})
	tiered, _ := New(Config{})
	for _, p := range all {
		for range 3 {
			w, end := rng.IntN(workers), len(p)-rng.IntN(60)
			r := kv.Rank{Worker: kv.WorkerID(w)}
			bare.Store(r, runWhole(p[:end]))
			plain.Store(r, storedOf(p[:end], 0, kv.TierDevice))
			tiered.Store(r, storedOf(p[:end/2], 0, kv.TierDevice))
			tiered.Store(r, storedOf(p[:end], end/2, kv.TierHost))
		}
	}
	b.Run("index=bare", func(b *testing.B) {
		dst := make([]kvindex.Overlap, 0, workers)
		for i := 0; b.Loop(); i++ {
			dst = bare.Find(hashes[i*7%len(all)], dst[:0])
		}
	})
	for _, v := range []struct {
		name string
		x    *Residency
	}{{"plain", plain}, {"tiered", tiered}} {
		b.Run("index="+v.name, func(b *testing.B) {
			b.ReportAllocs()
			dst := make([]router.Overlap, 0, workers)
			for i := 0; b.Loop(); i++ {
				dst = v.x.Find(hashes[i*7%len(all)], dst[:0])
			}
		})
	}
}

// BenchmarkStore measures 1000 prompts that come and go, per block.
func BenchmarkStore(b *testing.B) {
	all := prompts(1000)
	r := kv.Rank{Worker: 1}
	blocks := 0
	var runs []kvindex.Run
	for _, p := range all {
		runs = append(runs, runWhole(p))
		blocks += len(p)
	}
	perBlock := func(b *testing.B) {
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*blocks), "ns/block")
	}
	b.Run("index=bare", func(b *testing.B) {
		x, _ := kvindex.NewSharded(kvindex.ShardedConfig{})
		for b.Loop() {
			for i := range runs {
				x.Store(r, runs[i])
			}
			for i := range runs {
				x.Remove(r, runs[i].Hashes)
			}
		}
		perBlock(b)
	})
	for _, v := range []struct {
		name string
		tier kv.Tier
		seed uint64
	}{{"plain", kv.TierDevice, 0}, {"foreign", kv.TierDevice, 5}, {"tiered", kv.TierHost, 0}} {
		b.Run("index="+v.name, func(b *testing.B) {
			x, _ := New(Config{})
			var stored []events.Stored
			var names [][]kv.BlockHash
			for _, p := range all {
				s := storedOf(p, 0, v.tier)
				var n []kv.BlockHash
				for i := range s.Blocks {
					s.Blocks[i].Hash = name(s.Blocks[i].Hash, v.seed)
					n = append(n, s.Blocks[i].Hash)
				}
				stored, names = append(stored, s), append(names, n)
			}
			for b.Loop() {
				for i := range stored {
					x.Store(r, stored[i])
				}
				for i := range stored {
					x.Remove(r, v.tier, names[i])
				}
			}
			perBlock(b)
		})
	}
}

// BenchmarkReplace measures a rank's dump, while readers look up others.
func BenchmarkReplace(b *testing.B) {
	for _, n := range []int{100, 2000} {
		x, _ := New(Config{})
		var dump []events.Stored
		for _, p := range prompts(n) {
			dump = append(dump, storedOf(p, 0, kv.TierDevice))
		}
		b.Run(fmt.Sprintf("blocks=%d", blocksOf(dump)), func(b *testing.B) {
			for b.Loop() {
				x.Replace(kv.Rank{Worker: 1}, dump)
			}
		})
	}
}
