package tiering

import (
	"slices"
	"testing"
	"time"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/mempool"
)

// TestFoundWrong checks that an extent that was found wrong while it was being written is not used
// when a look into the shared directory finds it there, before its write has ended and its drop has
// begun. Once it has been dropped, another process may write it.
func TestFoundWrong(t *testing.T) {
	now := time.Duration(0)
	c := Config{Mode: Through}
	c.Tiers[kv.TierShared] = tierOf(20)
	c.Tiers[kv.TierShared].Kept = true
	b := newBook(t, c)
	xs := sequence(32)
	compute(b, now, xs)
	writes := b.Next(now, nil)
	b.Discard(xs[0].Key)
	begun(b) // cancellations, which come too late
	b.Found(kv.TierShared, xs)
	if _, n := b.Lookup(now, xs, 0, nil); n > 0 {
		t.Errorf("%d tokens would be read while their write is known to be wrong", n)
	}
	for _, m := range writes {
		b.Moved(now, m.ID, nil, time.Millisecond)
	}
	b.Found(kv.TierShared, xs)
	if _, n := b.Lookup(now, xs, 0, nil); n > 0 {
		t.Errorf("%d tokens would be read that are to be dropped", n)
	}
	if got, want := kinds(b, now), []string{"drop shared-shared 1", "drop shared-shared 0"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	b.Found(kv.TierShared, xs)
	if _, n := b.Lookup(now, xs, 0, nil); n != 32 {
		t.Errorf("%d tokens would be read that another process has written, want 32", n)
	}
	if err := b.Check(); err != nil || b.Busy() {
		t.Errorf("%v, busy %v", err, b.Busy())
	}
}

// TestFoundUnwritten checks that an extent is used that another process has written, while a write
// of it that was found wrong has not begun.
func TestFoundUnwritten(t *testing.T) {
	c := Config{Mode: Through}
	c.Tiers[kv.TierShared] = tierOf(20)
	c.Tiers[kv.TierShared].Kept = true
	b := newBook(t, c)
	xs := sequence(16)
	compute(b, 0, xs)
	b.Discard(xs[0].Key)
	b.Found(kv.TierShared, xs)
	if _, n := b.Lookup(0, xs, 0, nil); n != 16 {
		t.Errorf("%d tokens would be read, want 16", n)
	}
	if got := kinds(b, 0); len(got) > 0 || b.Busy() {
		t.Errorf("%v begin, busy %v", got, b.Busy())
	}
}

// TestParts checks that Parts names the extents that share pages with an extent under the same
// parent, stored or on their way to a tier, and no others.
func TestParts(t *testing.T) {
	now := time.Duration(0)
	c := Config{Mode: Through}
	c.Tiers[kv.TierHost], c.Tiers[kv.TierDisk] = tierOf(20), tierOf(20)
	b := newBook(t, c)
	of := func(salt string, tokens ...kv.Token) mempool.Extent {
		xs := layout.AppendExtents(nil, kv.Namespace{Salt: salt}, tokens, nil)
		return xs[len(xs)-1]
	}
	page := layout.PageTokens
	whole := make([]kv.Token, layout.ExtentTokens())
	x, stored, coming := of("", whole...), of("", whole[:page]...), of("", whole[:2*page]...)
	other, foreign := of("", slices.Repeat([]kv.Token{1}, 2*page)...), of("a", whole[:page]...)
	b.Found(kv.TierHost, []mempool.Extent{x})
	b.Found(kv.TierDisk, []mempool.Extent{other, foreign, stored})
	compute(b, now, []mempool.Extent{coming})
	b.Next(now, nil)
	if got, want := b.Parts(&x, nil), []mempool.Key{coming.Key, stored.Key}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
