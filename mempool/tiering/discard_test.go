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
	p := newPolicy(t, c)
	xs := sequence(32)
	compute(p, now, xs)
	writes := p.Next(now, nil)
	p.Discard(xs[0].Key)
	begun(p) // cancellations, which come too late
	p.Found(kv.TierShared, xs)
	if _, n := p.Lookup(now, xs, 0, nil); n > 0 {
		t.Errorf("%d tokens would be read while their write is known to be wrong", n)
	}
	for _, m := range writes {
		p.Moved(now, m.ID, nil, time.Millisecond)
	}
	p.Found(kv.TierShared, xs)
	if _, n := p.Lookup(now, xs, 0, nil); n > 0 {
		t.Errorf("%d tokens would be read that are to be dropped", n)
	}
	if got, want := kinds(p, now), []string{"drop shared-shared 1", "drop shared-shared 0"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	p.Found(kv.TierShared, xs)
	if _, n := p.Lookup(now, xs, 0, nil); n != 32 {
		t.Errorf("%d tokens would be read that another process has written, want 32", n)
	}
	if err := p.Check(); err != nil || p.Busy() {
		t.Errorf("%v, busy %v", err, p.Busy())
	}
}

// TestFoundUnwritten checks that an extent is used that another process has written, while a write
// of it that was found wrong has not begun.
func TestFoundUnwritten(t *testing.T) {
	c := Config{Mode: Through}
	c.Tiers[kv.TierShared] = tierOf(20)
	c.Tiers[kv.TierShared].Kept = true
	p := newPolicy(t, c)
	xs := sequence(16)
	compute(p, 0, xs)
	p.Discard(xs[0].Key)
	p.Found(kv.TierShared, xs)
	if _, n := p.Lookup(0, xs, 0, nil); n != 16 {
		t.Errorf("%d tokens would be read, want 16", n)
	}
	if got := kinds(p, 0); len(got) > 0 || p.Busy() {
		t.Errorf("%v begin, busy %v", got, p.Busy())
	}
}

// TestParts checks that Parts names the extents that share pages with an extent under the same
// parent, stored or on their way to a tier, and no others.
func TestParts(t *testing.T) {
	now := time.Duration(0)
	c := Config{Mode: Through}
	c.Tiers[kv.TierHost], c.Tiers[kv.TierDisk] = tierOf(20), tierOf(20)
	p := newPolicy(t, c)
	of := func(salt string, tokens ...kv.Token) mempool.Extent {
		xs := layout.AppendExtents(nil, kv.Namespace{Salt: salt}, tokens, nil)
		return xs[len(xs)-1]
	}
	page := layout.PageTokens
	whole := make([]kv.Token, layout.ExtentTokens())
	x, stored, coming := of("", whole...), of("", whole[:page]...), of("", whole[:2*page]...)
	other, foreign := of("", slices.Repeat([]kv.Token{1}, 2*page)...), of("a", whole[:page]...)
	p.Found(kv.TierHost, []mempool.Extent{x})
	p.Found(kv.TierDisk, []mempool.Extent{other, foreign, stored})
	compute(p, now, []mempool.Extent{coming})
	p.Next(now, nil)
	if got, want := p.Parts(&x, nil), []mempool.Key{coming.Key, stored.Key}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
