package tiering

import (
	"math"
	"testing"
	"time"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/mempool"
)

// TestMeasuredSpeeds checks that measured times of reads and computing decide, and that a tier
// that was slow once is tried again later.
func TestMeasuredSpeeds(t *testing.T) {
	c := Config{TokenGuess: 1e-3}
	c.Tiers[kv.TierHost] = tierOf(10) // 1 ms for an extent of 16 tokens
	b := newBook(t, c)
	xs := sequence(32)
	b.Found(kv.TierHost, xs)
	now := time.Duration(0)
	worth := func(what string, want int) {
		t.Helper()
		if _, got := b.Lookup(now, xs, 0, nil); got != want {
			t.Errorf("%s: %d tokens are worth a fetch, want %d", what, got, want)
		}
	}
	worth("as guessed", 32)
	b.Cost(leastTokens-1, time.Microsecond)
	worth("a small step", 32)
	b.Cost(1, time.Microsecond)
	worth("computing is cheap", 0)
	for range 40 { // each after the first counts an eighth
		b.Cost(leastTokens, leastTokens*time.Millisecond)
	}
	worth("computing is dear", 32)
	for _, err := range []error{nil, mempool.ErrDeadline} {
		for range leastExtents { // each one past its deadline doubles the estimate
			b.Want(now, 1, xs[:1], 0, nil)
			for _, m := range b.Next(now, nil) {
				now += time.Second
				b.Moved(now, m.ID, err, time.Second)
			}
			b.Forget(1)
		}
		worth("the tier is slow", 0)
		now += 20 * halfLife
		worth("some time later", 32)
	}
}

// TestConcurrentReads checks that eight concurrent reads of 4 ms count half a millisecond
// each.
func TestConcurrentReads(t *testing.T) {
	for _, c := range []struct {
		computing time.Duration // of 16 tokens
		want      int
	}{{510 * time.Microsecond, 16}, {490 * time.Microsecond, 0}} {
		cfg := Config{TokenSeconds: c.computing.Seconds() / 16}
		cfg.Tiers[kv.TierHost] = tierOf(10)
		cfg.Tiers[kv.TierHost].MaxMoves, cfg.Tiers[kv.TierHost].Bandwidth = 16, 1e9
		b := newBook(t, cfg)
		xs := sequence(16 * leastExtents)
		b.Found(kv.TierHost, xs)
		b.Cost(1000, time.Nanosecond) // no effect: TokenSeconds is set
		b.Want(0, 1, xs, 0, nil)
		for _, m := range b.Next(0, nil) {
			b.Moved(4*time.Millisecond, m.ID, nil, 4*time.Millisecond)
		}
		if _, got := b.Lookup(5*time.Millisecond, xs[:1], 0, nil); got != c.want {
			t.Errorf("computing takes %v: %d tokens are worth a fetch, want %d", c.computing, got, c.want)
		}
	}
}

// TestStallCountsOnce checks that eight reads which were in flight together, and are late together,
// count as one late read: a machine that stalls once says little about a tier. A read that begins
// after them and is late counts again.
func TestStallCountsOnce(t *testing.T) {
	cfg := Config{TokenSeconds: 1e-4} // 1.6 ms for an extent
	cfg.Tiers[kv.TierHost] = tierOf(10)
	cfg.Tiers[kv.TierHost].MaxMoves, cfg.Tiers[kv.TierHost].Bandwidth = 16, 1e7 // 0.1 ms for an extent
	b := newBook(t, cfg)
	xs := sequence(16 * leastExtents)
	b.Found(kv.TierHost, xs)
	stall := func(now time.Duration, id RequestID) {
		t.Helper()
		b.Want(now, id, xs, 0, nil)
		moves := b.Next(now, nil)
		if len(moves) < 2 {
			t.Fatalf("%d reads begin, want several", len(moves))
		}
		for _, m := range moves {
			b.Moved(m.Deadline, m.ID, mempool.ErrDeadline, m.Deadline-now)
		}
		b.Forget(id)
	}
	host := b.tiers[kv.TierHost]
	before := host.speed.at()
	for n, want := range []float64{2, 4} {
		stall(time.Duration(n)*time.Second, RequestID(n))
		if got := host.speed.at() / before; math.Abs(got-want) > 0.1 {
			t.Errorf("after %d stalls a byte is guessed to take %.1f times as long, want %v", n+1, got, want)
		}
	}
	if _, n := b.Lookup(2*time.Second, xs, 0, nil); n != 16*leastExtents {
		t.Errorf("%d tokens are worth a fetch after two stalls, want all %d", n, 16*leastExtents)
	}
}
