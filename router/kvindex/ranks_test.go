package kvindex

import (
	"sync"
	"testing"

	"github.com/coppice-llm/coppice/kv"
)

// TestRanksAtOnce: ranks of workers come and go concurrently. A stored block is found once, a
// removed one is gone.
func TestRanksAtOnce(t *testing.T) {
	for _, cfg := range bothCuts {
		s := mustSharded(t, cfg)
		locals := seq(1, 100)
		hashes := chain(locals)
		var ranks sync.WaitGroup
		for i := range uint32(6) {
			h := kv.Rank{Worker: kv.WorkerID(i % 3), DP: i / 3}
			ranks.Go(func() {
				for range 2000 {
					for range 2 {
						if _, err := s.Store(h, tail(locals, 0)); err != nil {
							t.Error(err)
						}
					}
					found(t, s.Find(locals, nil)) // no rank twice
					if s.Remove(h, hashes); s.Holds(h, hashes[0]) || t.Failed() {
						t.Errorf("%v: %v has what it removed", cfg.By, h)
						return
					}
					s.Forget(h)
				}
			})
		}
		ranks.Wait()
		if left := s.Find(locals, nil); len(left) > 0 || s.Check() != nil {
			t.Errorf("%v: %v is left, %v", cfg.By, left, s.Check())
		}
	}
}

// TestWorkersAreSpread: workers with consecutive numbers are spread over the shards.
func TestWorkersAreSpread(t *testing.T) {
	const shards, workers = 8, 512
	for _, first := range []kv.WorkerID{0, 1, 1 << 20, 0x9e37_79b9_7f4a_7c15} {
		for _, stride := range []kv.WorkerID{1, 8, 1 << 8, 1 << 32} {
			s := mustSharded(t, ShardedConfig{Shards: shards, By: ByWorker})
			var at [shards]int
			for i := range kv.WorkerID(workers) {
				at[s.homeOf(first+i*stride)]++
			}
			for i, n := range at {
				if n < workers/shards/2 || n > workers/shards*2 {
					t.Errorf("from %d by %d: %d of %d workers are in shard %d of %d", first, stride, n, workers, i, shards)
				}
			}
		}
	}
}
