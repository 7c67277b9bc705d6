package tiering

import (
	"fmt"
	"testing"
	"time"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/mempool"
)

// TestGhosts checks that an extent that left the device without a copy is on its second use when
// it is computed again, so that disk admits it.
func TestGhosts(t *testing.T) {
	now := time.Duration(0)
	c := Config{}
	c.Tiers[kv.TierDisk] = tierOf(10)
	b := newBook(t, c)
	fill(b, kv.TierDisk, 8) // a full disk admits nothing on its first use
	xs := sequence(16)
	for round, want := range []int{0, 1} {
		compute(b, now, xs)
		evict(b, now, &xs[0])
		if moves := b.Next(now, nil); len(moves) != want {
			t.Errorf("round %d: %v, want %d moves", round, moves, want)
		}
	}
}

// TestGhostsBounded checks that the oldest ghosts are forgotten, whichever were taken in between.
func TestGhostsBounded(t *testing.T) {
	key := func(n int) (k mempool.Key) {
		copy(k[:], fmt.Sprintf("%032d", n))
		return k
	}
	var g ghosts
	for n := range 3 * maxGhosts / 2 {
		g.put(key(n), n+1)
		if n%3 == 0 {
			if got := g.take(key(n)); got != n+1 {
				t.Fatalf("extent %d: %d uses", n, got)
			}
			g.put(key(n), n+1)
		}
	}
	if len(g.seen) > maxGhosts || len(g.ring) != maxGhosts {
		t.Errorf("%d are remembered in %d places, at most %d may be", len(g.seen), len(g.ring), maxGhosts)
	}
	if g.take(key(0)) != 0 || g.take(key(3*maxGhosts/2-1)) != 3*maxGhosts/2 || g.take(key(3*maxGhosts/2-1)) != 0 {
		t.Error("the oldest is remembered, or the latest is not, or twice")
	}
}
