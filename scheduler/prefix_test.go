package scheduler

import (
	"math"
	"testing"

	"github.com/coppice-llm/coppice/kv"
)

// TestFlushIsolatesRunningRequests checks that a running request, part of whose KV is from before
// a flush, shares none of it: neither by the cache nor by its open page, and no request
// waits for it.
func TestFlushIsolatesRunningRequests(t *testing.T) {
	for _, before := range []int{3, 6} { // tokens computed before: less than a page, and more than one
		b := newBed(t, Config{StepTokens: before, ShareTokens: 4}, 4, 40)
		b.add(1, seq(0, 12), 6)
		b.step()
		b.s.FlushCache()
		b.add(2, seq(0, 12), 1)
		if e := b.run()[2]; e.CachedTokens != 0 {
			t.Errorf("flushed after %d tokens: %d are given to another request", before, e.CachedTokens)
		}
		if m := b.s.Metrics(); m.Followers != 0 {
			t.Errorf("flushed after %d tokens: %d wait for what the cache will not have", before, m.Followers)
		}
		b.add(3, append(seq(0, 12), 96), 1)
		if e := b.run()[3]; e.CachedTokens != 12 {
			t.Errorf("flushed after %d tokens: %d later tokens are cached", before, e.CachedTokens)
		}
	}
}

// TestFlushFreesFollowers checks that a follower of a prompt in flight goes on by itself
// after a flush.
func TestFlushFreesFollowers(t *testing.T) {
	b := newBed(t, Config{StepTokens: 8, ShareTokens: 4}, 4, 40)
	b.add(1, seq(0, 40), 1)
	b.step()
	b.add(2, seq(0, 30), 1)
	b.step()
	if w := b.s.Why(2); w[0].Cause != AwaitsPrefix {
		t.Fatal(w)
	}
	b.s.FlushCache()
	b.step()
	if w := b.s.Why(2); w[0].Cause == AwaitsPrefix {
		t.Error(w)
	}
	if e := b.run()[2]; e.CachedTokens != 0 {
		t.Errorf("%d tokens from before the flush", e.CachedTokens)
	}
}

// TestPinWithLongDuration checks that a pin whose end overflows the clock has no end.
func TestPinWithLongDuration(t *testing.T) {
	b := newBed(t, Config{PinnedTokens: 8}, 4, 40)
	b.add(1, seq(0, 9), 1)
	b.run()
	if err := b.s.PinPrefix(b.now, kv.Namespace{}, seq(0, 8), math.MaxInt64); err != nil {
		t.Fatal(err)
	}
	b.add(2, seq(50, 9), 1)
	b.run()
	if n, tokens := b.s.Cache().PinnedPrefixes(); n != 1 || tokens != 8 {
		t.Errorf("%d prefixes of %d tokens are pinned", n, tokens)
	}
}
