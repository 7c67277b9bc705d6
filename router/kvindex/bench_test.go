package kvindex

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/coppice-llm/coppice/kv"
)

// fleet fills an index with prompts of about 220 blocks after one of 64 prefixes, each held by
// several workers.
func fleet(b *testing.B, workers, prompts int, store func(kv.Rank, Run) (int, error)) [][]kv.LocalHash {
	b.Helper()
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
	for range prompts {
		p := append(append([]kv.LocalHash(nil), stems[rng.IntN(64)]...), fresh(60+rng.IntN(200))...)
		all = append(all, p)
		for range 3 {
			if _, err := store(w(rng.IntN(workers)), tail(p[:len(p)-rng.IntN(60)], 0)); err != nil {
				b.Fatal(err)
			}
		}
	}
	return all
}

// chains returns the chained hashes of prompts.
func chains(prompts [][]kv.LocalHash) (all [][]kv.BlockHash) {
	for _, p := range prompts {
		all = append(all, chain(p))
	}
	return all
}

// BenchmarkFind measures a lookup in the plain index and in sharded ones: the difference is the
// cost of the locks.
func BenchmarkFind(b *testing.B) {
	for _, workers := range []int{8, 64, 512} {
		x, _ := New(Config{})
		one, _ := NewSharded(ShardedConfig{Shards: 1})
		eight, _ := NewSharded(ShardedConfig{})
		for _, v := range []struct {
			name string
			x    tree
		}{{"plain", x}, {"one", one}, {"eight", eight}} {
			prompts := chains(fleet(b, workers, 2000, v.x.Store))
			dst := make([]Overlap, 0, workers)
			b.Run(fmt.Sprintf("index=%s/workers=%d", v.name, workers), func(b *testing.B) {
				for i := 0; b.Loop(); i++ {
					dst = v.x.Find(prompts[i*7%len(prompts)], dst[:0])
				}
			})
		}
	}
}

// BenchmarkFindBesideWriter measures lookups on all processors while one worker stores and
// removes continuously.
func BenchmarkFindBesideWriter(b *testing.B) {
	for _, shards := range []int{1, 8} {
		b.Run(fmt.Sprintf("shards=%d", shards), func(b *testing.B) {
			s, _ := NewSharded(ShardedConfig{Shards: shards})
			prompts := fleet(b, 8, 2000, s.Store)
			hashes := chains(prompts)
			stop, done := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(done)
				for i := 0; ; i++ {
					select {
					case <-stop:
						return
					default:
					}
					p := prompts[i%len(prompts)]
					run := tail(p, 0)
					s.Store(w(9), run)
					s.Remove(w(9), run.Hashes[len(p)/2:])
				}
			}()
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				dst := make([]Overlap, 0, 16)
				for i := 0; pb.Next(); i++ {
					dst = s.Find(hashes[i*7%len(hashes)], dst[:0])
				}
			})
			b.StopTimer()
			close(stop)
			<-done
		})
	}
}

// BenchmarkClear measures one block of a worker next to many first blocks of others.
func BenchmarkClear(b *testing.B) {
	for _, siblings := range []int{100, 100000} {
		x, _ := New(Config{})
		for i := range siblings {
			x.Store(w(i%8), tail(seq(i+1, i+1), 0))
		}
		run := tail(seq(1<<30, 1<<30), 0)
		b.Run(fmt.Sprintf("siblings=%d", siblings), func(b *testing.B) {
			for b.Loop() {
				x.Store(w(9), run)
				x.Clear(w(9))
			}
		})
	}
}

// BenchmarkRoute measures prompts of 512 blocks with constant eviction.
func BenchmarkRoute(b *testing.B) {
	for _, known := range []bool{true, false} {
		b.Run(fmt.Sprintf("blocks=512/known=%v", known), func(b *testing.B) {
			a, err := NewApproximate(ApproximateConfig{})
			if err != nil {
				b.Fatal(err)
			}
			hashes := make([]kv.BlockHash, 512)
			next := uint64(0)
			for b.Loop() {
				for i := range hashes {
					if !known || next < 512 {
						next++
						hashes[i] = kv.BlockHash(next * 0x9e3779b97f4a7c15)
					}
				}
				if err := a.Route(w(1), Run{Hashes: hashes}, time.Duration(next)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
