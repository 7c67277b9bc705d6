package kvindex

import (
	"sync"
	"testing"

	"github.com/coppice-llm/coppice/kv"
)

// TestRanksAtOnce: ranks of workers come and go concurrently. A stored block is found once, a
// removed one is gone.
func TestRanksAtOnce(t *testing.T) {
	for _, cfg := range oneAndThree {
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
					found(t, s.Find(hashes, nil)) // no rank twice
					if s.Remove(h, hashes); s.Holds(h, hashes[0]) || t.Failed() {
						t.Errorf("%d shards: %v has what it removed", cfg.Shards, h)
						return
					}
					s.Forget(h)
				}
			})
		}
		ranks.Wait()
		if left := s.Find(hashes, nil); len(left) > 0 || s.Check() != nil {
			t.Errorf("%d shards: %v is left, %v", cfg.Shards, left, s.Check())
		}
	}
}
