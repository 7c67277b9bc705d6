package missratio

import (
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/coppice-llm/coppice/kv"
)

func play(cfg config, requests [][]kv.Token) *Curve {
	c := newCurve(cfg)
	for _, r := range requests {
		c.Access(kv.Namespace{}, r)
	}
	return c
}

// The bounds with few samples hold for this seed, not for all. Over the first
// twelve, with 1,024 samples, the worst error was 3.9 points in chat (the median
// of the worst 2.0), 2.8 in tree, 0.9 in fewshot and 0 in unique; with the chance
// of other hashes, up to 6.2 in chat. At the default it was at most 0.5 in all.
func TestCurveAgreesWithLRU(t *testing.T) {
	few := map[string]float64{"chat": 0.04, "fewshot": 0.005, "tree": 0.015, "unique": 0.005}
	for shape := range shapes {
		t.Run(shape, func(t *testing.T) {
			tr := paged(generate(shape, 3000, 1), 16)
			full, small := play(config{pageTokens: 16}, tr.requests), play(config{pageTokens: 16, samples: 1024}, tr.requests)
			for _, percent := range []int{2, 5, 10, 25, 50, 100} {
				capacity := tr.distinct * percent / 100 * tr.page
				want := tr.lru(capacity)
				if got := full.rate(capacity); math.Abs(got-want) > 0.01 {
					t.Errorf("%d %%: rate %.4f, LRU %.4f", percent, got, want)
				}
				if got := small.rate(capacity); math.Abs(got-want) > few[shape] {
					t.Errorf("%d %%, 1024 samples: rate %.4f, LRU %.4f", percent, got, want)
				}
			}
			ideal := tr.lru(tr.tokens + tr.page)
			for _, c := range []*Curve{full, small} {
				if got := c.rate(math.MaxInt); math.Abs(got-ideal) > 0.01 {
					t.Errorf("unbounded: rate %.4f, ideal %.4f", got, ideal)
				}
				checkCurve(t, c)
			}
		})
	}
}

// checkCurve: in [0, 1], and never falling but for rounding.
func checkCurve(t testing.TB, c *Curve) {
	t.Helper()
	last := 0.0
	for capacity := 1; capacity <= c.cfg.maxTokens; capacity += 1 + capacity/37 {
		rate := c.rate(capacity)
		if rate < last-1e-9 || rate < 0 || rate > 1 {
			t.Fatalf("rate %v at %d after %v", rate, capacity, last)
		}
		last = rate
	}
}

func TestAccessDoesNotAllocate(t *testing.T) {
	requests := generate("chat", 2000, 3)
	ns := kv.Namespace{LoRA: "a", Salt: "b"}
	c := play(config{samples: 256, maxTokens: 1 << 17}, requests[:1000])
	held, at := bytesOf(c), 1000
	if n := testing.AllocsPerRun(900, func() { c.Access(ns, requests[at]); at++ }); n != 0 {
		t.Errorf("%v allocations an access, want 0", n)
	}
	if bytesOf(c) != held {
		t.Errorf("%d bytes, before %d", bytesOf(c), held)
	}
	if c.table.n > 256 {
		t.Errorf("%d blocks tracked, want at most 256", c.table.n)
	}
}

// bytesOf returns the memory that a curve holds, which New fixes.
func bytesOf(c *Curve) int {
	return int(unsafe.Sizeof(*c)) +
		int(unsafe.Sizeof(entry{}))*(cap(c.table.entries)+cap(c.table.spare)) + int(unsafe.Sizeof(walk{}))*cap(c.line.walks) +
		8*(cap(c.line.sums)+cap(c.line.tokens)) + 4*cap(c.line.moved) +
		8*(cap(c.gains.turns)+cap(c.gains.places)) + cap(c.refers)
}

func TestBytes(t *testing.T) {
	c := play(config{}, nil)
	if b := bytesOf(c); b > 3<<20 {
		t.Errorf("%d bytes at the defaults", b)
	}
}

func TestNamespacesShareNothing(t *testing.T) {
	c := play(config{}, nil)
	tokens := generate("unique", 1, 1)[0]
	spaces := []kv.Namespace{{}, {LoRA: "x"}, {Salt: "x"}, {Model: "x"}, {Model: "bc", LoRA: "a"}, {Model: "c", LoRA: "ab"}, {LoRA: "bc", Salt: "a"}, {LoRA: "c", Salt: "ab"}}
	for _, ns := range spaces {
		c.Access(ns, tokens)
	}
	if r := c.rate(math.MaxInt); r != 0 {
		t.Errorf("rate %v over %d namespaces, want 0", r, len(spaces))
	}
	for _, ns := range spaces {
		c.Access(ns, tokens)
	}
	if r := c.rate(math.MaxInt); r != 0.5 {
		t.Errorf("rate %v after a second round, want 0.5", r)
	}
	if r := c.rate(len(tokens)); r != 0 {
		t.Errorf("rate %v with room for one, want 0", r)
	}
}

// A prompt that is repeated at once, longer by one token: all of it is a hit, also the
// part that fills no block, once the capacity suffices.
func TestEndsAreExactToTheToken(t *testing.T) {
	tokens := generate("unique", 1, 1)[0][:101]
	c := play(config{}, [][]kv.Token{tokens[:100], tokens})
	for capacity, want := range map[int]float64{50: 50, 99: 99, 100: 100, 1000: 100} {
		if got := c.rate(capacity) * 201; math.Abs(got-want) > 1e-9 {
			t.Errorf("capacity %d: %v hits, want %v", capacity, got, want)
		}
	}
}

func TestEndsAreWholePages(t *testing.T) {
	tokens := generate("unique", 1, 1)[0][:101]
	for page, want := range map[int]float64{16: 96, 32: 96, 7: 98, 40: 80, 100: 100, 128: 0} {
		c := play(config{pageTokens: page}, [][]kv.Token{tokens[:100], tokens})
		for capacity, want := range map[int]float64{40: min(40, want), 1000: want} {
			if got := c.rate(capacity) * 201; math.Abs(got-want) > 1e-9 {
				t.Errorf("pages of %d, capacity %d: %v hits, want %v", page, capacity, got, want)
			}
		}
	}
}

// If all requests fork at the same place, the guess there is wrong in the same way each
// time, so the error must be small. Bounds are in points of a hundred: of requests of 240
// tokens, 8 are 3.3, but in the head forks are known.
func TestCommonPrefixesOfAllLengths(t *testing.T) {
	for _, page := range []int{1, 16, 24, 64} {
		for _, prefix := range []int{16, 40, 48, 100, 160, 528} {
			g := gen{rand.New(rand.NewPCG(5, 5))}
			stem, requests := g.more(nil, prefix), [][]kv.Token(nil)
			for range 300 {
				requests = append(requests, g.more(stem, 240-prefix%240))
			}
			size := len(requests[0])
			want := float64(299*(prefix/page*page)) / float64(300*size)
			bound := 0.001
			if page == 1 || prefix > 480 {
				bound = 16.0 / float64(size) // a guess within a block
			}
			c := play(config{pageTokens: page}, requests)
			if got := c.rate(1 << 20); math.Abs(got-want) > bound {
				t.Errorf("pages of %d, common %d of %d tokens: rate %.4f, want %.4f", page, prefix, size, got, want)
			}
		}
	}
}

func TestResetForgets(t *testing.T) {
	requests := generate("tree", 300, 1)
	c, fresh := play(config{samples: 128}, generate("chat", 300, 1)), play(config{samples: 128}, requests)
	c.Reset()
	if r := c.rate(1000); r != 0 {
		t.Errorf("rate %v after Reset", r)
	}
	for _, r := range requests {
		c.Access(kv.Namespace{}, r)
	}
	for capacity := 1; capacity < 1<<20; capacity *= 2 {
		if a, b := c.rate(capacity), fresh.rate(capacity); a != b {
			t.Errorf("capacity %d: %v after Reset, %v fresh", capacity, a, b)
		}
	}
}

// A flood of one-block requests makes sampling sparse; when it is forgotten,
// sampling grows dense again, and the curve is as good as a fresh one.
func TestRateOfSamplingRecovers(t *testing.T) {
	c := play(config{samples: 1024, maxTokens: 1 << 18}, nil)
	for _, r := range generate("unique", 40000, 9) {
		c.Access(kv.Namespace{}, r[:32])
	}
	sparse := c.take.base
	tr := paged(generate("fewshot", 12000, 2), 16)
	for _, r := range tr.requests {
		c.Access(kv.Namespace{}, r)
	}
	if c.take.base < 2*sparse {
		t.Errorf("rate %v after the flood, %v in it", c.take.base, sparse)
	}
	capacity := 1 << 15
	got := c.rate(capacity) * c.seen / float64(tr.tokens)
	if want := tr.lru(capacity); math.Abs(got-want) > 0.02 {
		t.Errorf("rate %.4f after a flood, LRU %.4f", got, want)
	}
}

func BenchmarkAccess(b *testing.B) {
	tokens := 0
	requests := generate("chat", 3000, 1)
	for i, r := range requests {
		if len(r) > 3500 {
			requests[i] = r[:3500]
		}
		tokens += len(requests[i])
	}
	c := New(DefaultSamples)
	if err := c.Begin(1); err != nil {
		b.Fatal(err)
	}
	i := 0
	for b.Loop() {
		c.Access(kv.Namespace{}, requests[i%len(requests)])
		i++
	}
	perRequest := float64(b.Elapsed().Nanoseconds()) / float64(b.N)
	b.ReportMetric(perRequest*3500*float64(len(requests))/float64(tokens), "ns/3500tokens")
}
