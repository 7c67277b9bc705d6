package radixcache

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/coppice-llm/coppice/internal/invariants"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/radixcache/missratio"
)

func newCurveCache(t testing.TB) *Cache {
	return newCache(t, Config{PageTokens: 1, Curve: missratio.New(missratio.DefaultSamples)})
}

// wantHits observes two keys on a fresh curve. At an unlimited capacity it wants as many hits as
// want says, of as many tokens in both keys as of says.
func wantHits(t *testing.T, what string, want, of int, first, second Key) {
	t.Helper()
	c := newCache(t, Config{PageTokens: 16, Curve: missratio.New(missratio.DefaultSamples)})
	c.Observe(first)
	c.Observe(second)
	if got := c.HitRates([]int{math.MaxInt}, nil)[0] * float64(of); math.Abs(got-float64(want)) > 1e-6 {
		t.Errorf("%s: %v tokens hit, want %d", what, got, want)
	}
}

func TestCurveSamplesLimits(t *testing.T) {
	for samples, ok := range map[int]bool{
		0: false, -1: false, 1: false, missratio.MinSamples - 1: false, missratio.MinSamples: true,
		missratio.MinSamples + 1: true, missratio.MaxSamples: true, missratio.MaxSamples + 1: false,
	} {
		cfg := Config{Curve: missratio.New(samples)}
		if _, err := New(cfg); (err == nil) != ok || err != nil && !errors.Is(err, ErrConfig) {
			t.Errorf("%d samples: %v", samples, err)
		}
		if _, err := New(cfg); !errors.Is(err, ErrConfig) {
			t.Errorf("a second cache of a curve of %d samples: %v", samples, err)
		}
	}
}

func TestWithoutCurve(t *testing.T) {
	c := newCache(t, Config{PageTokens: 1})
	c.Insert(keyOf(1, 2, 3), pageRange(0, 3), nil)
	c.Observe(mediaKeyOf([]kv.Media{{At: 0, Tokens: 1, Hash: 1}}, 1, 2, 3))
	if got := c.HitRates([]int{1, 1000}, nil); got != nil {
		t.Errorf("%v, want nil", got)
	}
	if got := c.HitRates([]int{1, 1000}, []float64{0.5}); !slices.Equal(got, []float64{0.5}) {
		t.Errorf("%v, want the slice that was passed", got)
	}
	c.Flush()
	if c.curve.live != nil || c.curve.scratch != nil {
		t.Errorf("a curve: %+v", c.curve)
	}
}

func TestHitRates(t *testing.T) {
	c := newCurveCache(t)
	sizes := []int{-1, 0, 64, 128, 1 << 26, math.MaxInt}
	if got := c.HitRates(sizes, nil); !slices.Equal(got, make([]float64, len(sizes))) {
		t.Errorf("%v before the first request, want zeros", got)
	}
	c.Observe(Key{})
	first := countUp(1, 128)
	c.Insert(Key{Tokens: first}, pageRange(0, 128), nil)
	c.Insert(Key{Tokens: first}, pageRange(128, 128), nil)
	if got, want := c.HitRates(sizes, []float64{7}), []float64{7, 0, 0, 0.25, 0.5, 0.5, 0.5}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v: Insert counts its key once", got, want)
	}
	// A request that publishes chunk by chunk counts when it is observed.
	handle, _ := c.Extend(c.Pin(c.Match(Key{Tokens: first})), Key{Tokens: countUp(1, 192)}, pageRange(256, 192), nil)
	handle, _ = c.Extend(handle, Key{Tokens: countUp(1, 256)}, pageRange(512, 256), nil)
	c.Unpin(handle)
	if got := c.HitRates([]int{1 << 20}, nil)[0]; got != 0.5 {
		t.Errorf("%v after Extend, want 0.5 still", got)
	}
	c.Observe(Key{Tokens: countUp(1, 256)})
	if got := c.HitRates([]int{1 << 20}, nil)[0]; got != 0.5 {
		t.Errorf("%v, want 256 of 512 tokens", got)
	}
	c.Flush()
	if got := c.HitRates([]int{1 << 20}, nil)[0]; got != 0 {
		t.Errorf("%v after Flush, want 0", got)
	}
	c.Observe(Key{Tokens: first})
	if got := c.HitRates([]int{1 << 20}, nil)[0]; got != 0 {
		t.Errorf("%v for tokens held before Flush, want 0", got)
	}
}

// The curve distinguishes the same requests as the tree.
func TestCurveKnowsMedia(t *testing.T) {
	tokens := append(countUp(1, 64), slices.Repeat(toks(9), 64)...)
	tokens = append(tokens, countUp(100, 32)...)
	with := func(spans ...kv.Media) Key { return mediaKeyOf(spans, tokens...) }
	cat, dog := kv.Media{At: 64, Tokens: 64, Hash: 5}, kv.Media{At: 64, Tokens: 64, Hash: 6}
	high := kv.Media{At: 64, Tokens: 64, Hash: 5 | 1<<40}
	half, next := kv.Media{At: 64, Tokens: 32, Hash: 5}, kv.Media{At: 96, Tokens: 32, Hash: 5}
	wantHits(t, "the same image", 160, 320, with(cat), with(cat))
	wantHits(t, "before the image", 64, 224, with(cat), Key{Tokens: tokens[:64]})
	for what, other := range map[string]Key{"another image": with(dog), "another in the high half": with(high), "none": with(), "hash 0": with(kv.Media{At: 64, Tokens: 64})} {
		wantHits(t, what, 64, 320, with(cat), other)
	}
	wantHits(t, "one image, then two halves", 96, 320, with(cat), with(half, next))
	wantHits(t, "image of hash 0, then none", 64, 320, with(kv.Media{At: 64, Tokens: 64}), with())
	for _, bad := range []kv.Media{{At: 64, Tokens: 97}, {At: 64}, {At: 64, Tokens: math.MaxInt}, {At: 64, Tokens: -1}} {
		wantHits(t, "cut at a bad span", 64, 64+160, with(bad), with())
	}
	for _, bad := range []kv.Media{{At: -1, Tokens: 5}, {At: math.MinInt, Tokens: 5}, {At: 161, Tokens: 1}, {At: math.MaxInt, Tokens: 1}} {
		n := min(max(bad.At, 0), 160)
		wantHits(t, "a span elsewhere", n, n+160, with(bad), with())
	}
	if key := with(cat, dog); !slices.Equal(key.Tokens[64:128], slices.Repeat(toks(9), 64)) {
		t.Error("the key's tokens have changed")
	}
}

func TestCurveKnowsPublicTokens(t *testing.T) {
	tokens := countUp(1, 160)
	for _, tc := range []struct {
		what         string
		public, want int
	}{
		{"nothing public", 0, 0},
		{"four pages", 64, 64},
		{"four pages and a bit", 79, 64},
		{"all", 160, 160},
		{"more than there is", 1000, 160},
	} {
		of := func(salt string) Key { return tenantKey(salt, tc.public, tokens...) }
		wantHits(t, tc.what+", other salts", tc.want, 320, of("a"), of("b"))
		wantHits(t, tc.what+", one salt", 160, 320, of("a"), of("a"))
		wantHits(t, tc.what+", then without", tc.want, 320, of("a"), of(""))
	}
	wantHits(t, "public tokens without a salt", 160, 320, tenantKey("", 64, tokens...), tenantKey("", 0, tokens...))
	wantHits(t, "another model", 0, 320, tenantKey("a", 160, tokens...), keyOf(tokens...))
}

// randomKey draws text, images, salts and public beginnings from few values, so that much
// is shared.
func randomKey(rng *rand.Rand) Key {
	var key Key
	for range 1 + rng.IntN(4) {
		switch rng.IntN(3) {
		case 0:
			n := 20 + rng.IntN(40)
			key.Media = append(key.Media, kv.Media{At: len(key.Tokens), Tokens: n, Hash: rng.Uint64N(3) << 31})
			key.Tokens = append(key.Tokens, slices.Repeat(toks(9), n)...)
		default:
			key.Tokens = append(key.Tokens, countUp(kv.Token(1000*rng.IntN(3)), 1+rng.IntN(150))...)
		}
	}
	key.Namespace.Salt = []string{"", "a", "b"}[rng.IntN(3)]
	key.PublicTokens = []int{0, 100, 1000}[rng.IntN(3)]
	return key
}

// TestCurveAgreesWithTheTree compares the curve with the hits of an unlimited cache, also
// for pages wider than a block.
func TestCurveAgreesWithTheTree(t *testing.T) {
	n := 6000
	if invariants.Enabled {
		n = 300
	}
	for page, bound := range map[int]float64{5: 0.02, 16: 0.002, 24: 0.002, 40: 0.002} {
		c := newCache(t, Config{PageTokens: page, Curve: missratio.New(1 << 17)})
		rng, next := rand.New(rand.NewPCG(1, 2)), kv.PageID(0)
		for range n {
			key := randomKey(rng)
			pages := kv.CeilPages(len(key.Tokens), page)
			c.Insert(key, pageRange(next, pages), nil)
			next += kv.PageID(pages)
		}
		s := c.Stats()
		want := float64(s.HitTokens) / float64(s.LookupTokens)
		if got := c.HitRates([]int{1 << 26}, nil)[0]; math.Abs(got-want) > bound || want < 0.2 {
			t.Errorf("pages of %d: rate %.4f, of the tree %.4f", page, got, want)
		}
	}
}

func TestObserveDoesNotAllocate(t *testing.T) {
	c := newCurveCache(t)
	tokens := countUp(1, 3500)
	for what, key := range map[string]Key{
		"plain":  {Tokens: tokens},
		"salted": {Tokens: tokens, Namespace: kv.Namespace{Salt: "a"}},
		"public": {Tokens: tokens, Namespace: kv.Namespace{Salt: "a"}, PublicTokens: 100},
		"media":  {Tokens: tokens, Media: []kv.Media{{At: 5, Tokens: 400, Hash: 3}}},
	} {
		if n := testing.AllocsPerRun(100, func() { c.Observe(key) }); n != 0 {
			t.Errorf("%s: %v allocations, want 0", what, n)
		}
	}
	rates, sizes := make([]float64, 0, 2), []int{100, 10000}
	if n := testing.AllocsPerRun(100, func() { rates = c.HitRates(sizes, rates[:0]) }); n != 0 {
		t.Errorf("HitRates: %v allocations, want 0", n)
	}
}
