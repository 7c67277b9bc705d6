package sampling

import (
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/zeebo/xxh3"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/internal/f32"
	"github.com/coppice-llm/coppice/internal/splitmix"
	"github.com/coppice-llm/coppice/kv"
)

func logits(seed uint64, n int) []float32 {
	r := rand.New(rand.NewPCG(seed, 1))
	l := make([]float32, n)
	for i := range l {
		l[i] = float32(r.NormFloat64() * 3)
		if r.IntN(3) == 0 {
			l[i] = float32(r.IntN(7) - 3) // ties
		}
	}
	return l
}

func bound(vocab int, p engine.SamplingParams) *Sampler {
	s := New(1, vocab)
	s.Bind(&engine.SlotBind{Sampling: p})
	return s
}

// plainDraw draws like Sampler.draw, for parameters without penalties. It follows the order of
// engine.SamplingParams literally, and sorts.
func plainDraw(l []float32, p engine.SamplingParams, index int32) kv.Token {
	type cand struct {
		id int
		z  float32
	}
	var c []cand
	for i, x := range l {
		for _, b := range p.Bias {
			if int(b.Token) == i {
				x += b.Bias
			}
		}
		if !math.IsInf(float64(x), -1) {
			c = append(c, cand{i, float32(x / p.Temperature)})
		}
	}
	slices.SortStableFunc(c, func(a, b cand) int {
		switch {
		case a.z > b.z:
			return -1
		case a.z < b.z:
			return 1
		}
		return a.id - b.id
	})
	top := c[0].z
	if p.MinP > 0 {
		c = slices.DeleteFunc(c, func(x cand) bool { return f32.Exp32(x.z-top) < p.MinP })
	}
	if p.TopK > 0 {
		c = c[:min(len(c), int(p.TopK))]
	}
	if p.TopP > 0 && p.TopP < 1 {
		weight := func(x cand) uint64 { return uint64(math.RoundToEven(float64(f32.Exp32(x.z-top)) * (1 << 40))) }
		total, sum := uint64(0), uint64(0)
		for _, x := range c {
			total += weight(x)
		}
		target := uint64(math.Ceil(float64(p.TopP) * float64(total)))
		for i, x := range c {
			if sum += weight(x); sum >= target {
				c = c[:i+1]
				break
			}
		}
	}
	best, score := -1, float32(math.Inf(-1))
	for _, x := range c {
		h := splitmix.Mix(splitmix.Mix(splitmix.Mix(p.Seed+splitmix.Golden)^uint64(index)*splitmix.Golden) ^ uint64(x.id+1)*splitmix.Golden)
		u := float32((float32(h>>41) + 0.5) * 0x1p-23)
		v := x.z - f32.Log32(-f32.Log32(u))
		if v > score || v == score && x.id < best {
			best, score = x.id, v
		}
	}
	return kv.Token(best)
}

func TestDrawEqualsSorting(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 3))
	for i := range 3000 {
		n := 1 + r.IntN(300)
		l := logits(uint64(i), n)
		p := engine.SamplingParams{Temperature: float32(r.Float64()*2 + 0.05), Seed: r.Uint64()}
		if r.IntN(2) == 0 {
			p.TopK = int32(r.IntN(n + 10))
		}
		if r.IntN(2) == 0 {
			p.TopP = float32(r.Float64())
		}
		if r.IntN(3) == 0 {
			p.MinP = float32(r.Float64() * 0.3)
		}
		if n > 1 && r.IntN(3) == 0 {
			p.Bias = []engine.TokenBias{{Token: 0, Bias: float32(math.Inf(-1))}, {Token: 1, Bias: 2}}
		}
		index := int32(r.IntN(1000))
		before := slices.Clone(l)
		var o engine.RowOut
		bound(n, p).Sample(&engine.Row{Sample: true, SampleIndex: index}, 0, nil, l, &o)
		if o.Err != nil {
			t.Fatal(o.Err)
		}
		if want := plainDraw(before, p, index); o.Token != want {
			t.Fatalf("case %d: %+v: token %d, want %d", i, p, o.Token, want)
		}
		if !slices.Equal(l, before) {
			t.Fatal("the logits were changed")
		}
	}
}

// Under a mask the greedy token is the one that a bias of 0, which takes the long way, gives as well: with
// ties, with bits past the vocabulary, and where the mask allows nothing.
func TestGreedyUnderMask(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 5))
	none := 0
	for i := range 2000 {
		n := 1 + r.IntN(200)
		l := logits(uint64(i), n)
		for range r.IntN(4) {
			l[r.IntN(n)] = slices.Max(l)
		}
		mask := make([]uint64, (n+63)/64)
		for range r.IntN(6) {
			at := r.IntN(64 * len(mask))
			mask[at/64] |= 1 << (at % 64)
		}
		var got, want engine.RowOut
		bound(n, engine.SamplingParams{}).Sample(&engine.Row{Sample: true}, 0, mask, l, &got)
		bound(n, engine.SamplingParams{Bias: []engine.TokenBias{{}}}).Sample(&engine.Row{Sample: true}, 0, mask, l, &want)
		if got.Token != want.Token || (got.Err == nil) != (want.Err == nil) {
			t.Fatalf("case %d: token %d, %v; want %d, %v", i, got.Token, got.Err, want.Token, want.Err)
		}
		if got.Err != nil {
			none++
		}
	}
	if none == 0 || none == 2000 {
		t.Errorf("%d masks allow nothing", none)
	}
}

// TestDistribution draws from a known softmax. A correct sampler exceeds the bound of χ², with 9
// degrees of freedom, once in a million.
func TestDistribution(t *testing.T) {
	l := logits(5, 10)
	s := bound(10, engine.SamplingParams{Temperature: 2, Seed: 77})
	var seen [10]float64
	const n = 20000
	for i := range n {
		var o engine.RowOut
		s.Sample(&engine.Row{Sample: true, SampleIndex: int32(i)}, 0, nil, l, &o)
		seen[o.Token]++
	}
	sum := 0.0
	for _, x := range l {
		sum += math.Exp(float64(x) / 2)
	}
	chi := 0.0
	for i, x := range l {
		want := n * math.Exp(float64(x)/2) / sum
		chi += (seen[i] - want) * (seen[i] - want) / want
	}
	if chi > 45 {
		t.Errorf("χ² is %.1f at 9 degrees of freedom", chi)
	}
}

func TestDigestAndLogprobs(t *testing.T) {
	l := logits(6, 100)
	var buf []byte
	sum, best := 0.0, 0
	for i, x := range l {
		buf = binary.LittleEndian.AppendUint32(buf, math.Float32bits(x))
		sum += math.Exp(float64(x))
		if x > l[best] {
			best = i
		}
	}
	s := bound(100, engine.SamplingParams{TopLogprobs: 20, Bias: []engine.TokenBias{{Token: 3, Bias: 100}}})
	var o engine.RowOut
	s.Sample(&engine.Row{Sample: true, Digest: true}, 4, nil, l, &o)
	if o.Row != 4 || o.Token != 3 || o.Digest != xxh3.Hash(buf) {
		t.Errorf("row %d, token %d, digest %x; want 4, 3, %x", o.Row, o.Token, o.Digest, xxh3.Hash(buf))
	}
	if want := float64(l[3]) - math.Log(sum); math.Abs(float64(o.Logprob)-want) > 1e-5 {
		t.Errorf("log-probability %v of the raw logits, want %v", o.Logprob, want)
	}
	if len(o.Top) != 20 || o.Top[0].Token != kv.Token(best) {
		t.Fatalf("top %v, want 20 led by %d", o.Top, best)
	}
	order := make([]int, 100)
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		if l[a] > l[b] {
			return -1
		} else if l[a] < l[b] {
			return 1
		}
		return 0
	})
	for i, e := range o.Top {
		if int(e.Token) != order[i] {
			t.Fatalf("top entry %d is token %d, want %d", i, e.Token, order[i])
		}
	}
}

func TestPenalties(t *testing.T) {
	l := []float32{4, 2, -2, 1, 0}
	p := engine.SamplingParams{RepetitionPenalty: 2, PresencePenalty: 0.5, FrequencyPenalty: 0.25}
	var c counts
	c.rebuild(5, []kv.Token{0, 2, 4}, []kv.Token{1, 1, 2})
	c.apply(l, &p)
	// 4/2; 2/2-0.5-2·0.25; -2·2-0.5-0.25; untouched; 0
	if want := []float32{2, 0, -4.75, 1, 0}; !slices.Equal(l, want) {
		t.Errorf("penalised logits %v, want %v", l, want)
	}
	var d counts
	d.rebuild(5, []kv.Token{0, 2, 4}, nil)
	for _, x := range []kv.Token{1, 1, 2} {
		d.add(x)
	}
	if !slices.Equal(c.dense, d.dense) {
		t.Errorf("counts %v step by step, %v rebuilt", d.dense, c.dense)
	}
	c.reset()
	if slices.Max(c.dense) != 0 {
		t.Errorf("counts after reset: %v", c.dense)
	}
}

func TestErrors(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	s := bound(3, engine.SamplingParams{})
	for _, bad := range [][]float32{{1, nan, 2}, {inf, 0, 0}, {0, 0, -inf}} {
		s.slots[0].sampled = true
		var o engine.RowOut
		s.Sample(&engine.Row{Sample: true}, 0, nil, bad, &o)
		if !errors.Is(o.Err, engine.ErrLogits) {
			t.Errorf("logits %v: %v, want ErrLogits", bad, o.Err)
		}
		if _, ok := s.Last(0); ok {
			t.Errorf("logits %v: the slot still has a last token", bad)
		}
	}
	for _, temperature := range []float32{0, 1} {
		s = bound(3, engine.SamplingParams{Temperature: temperature})
		var o engine.RowOut
		s.Sample(&engine.Row{Sample: true}, 0, []uint64{0}, []float32{1, 2, 3}, &o)
		if !errors.Is(o.Err, engine.ErrNoToken) {
			t.Errorf("temperature %v, empty mask: %v, want ErrNoToken", temperature, o.Err)
		}
	}
	// Extremes stay finite: a draw among huge logits at a tiny temperature.
	s = bound(3, engine.SamplingParams{Temperature: 1e-38, TopP: 0.5, Bias: []engine.TokenBias{{Token: 0, Bias: math.MaxFloat32}}})
	var o engine.RowOut
	s.Sample(&engine.Row{Sample: true}, 0, nil, []float32{math.MaxFloat32, 1, -math.MaxFloat32}, &o)
	if o.Err != nil || o.Token != 0 {
		t.Errorf("extreme logits: token %d, %v", o.Token, o.Err)
	}
}

// TestTinyTemperature checks that a temperature so low that quotients overflow f32 gives the best
// token, as 0 does, the lowest id on ties, whatever else is set.
func TestTinyTemperature(t *testing.T) {
	for _, l := range [][]float32{
		{1, 8, 9, 9, 2}, {-9, -8, -2, -7, -7}, {-1, 4, 5, 4.5, 5}, {0, 1e-3, 2e-3, 1, 3.5},
		{1e38, math.MaxFloat32, 3e38, 0, math.MaxFloat32}, logits(11, 500),
	} {
		for _, temperature := range []float32{math.SmallestNonzeroFloat32, 1e-44, 1e-42, 1e-39, 1e-38, 1e-37, 1e-30} {
			for i, p := range []engine.SamplingParams{{}, {TopP: 0.9}, {TopK: 3}, {MinP: 0.5}, {TopK: 1}, {Bias: []engine.TokenBias{{Token: 2, Bias: float32(math.Inf(-1))}}}} {
				greedy := p
				p.Temperature, p.Seed = temperature, uint64(i)
				var got, want engine.RowOut
				bound(len(l), greedy).Sample(&engine.Row{Sample: true}, 0, nil, l, &want)
				bound(len(l), p).Sample(&engine.Row{Sample: true, SampleIndex: int32(i)}, 0, nil, l, &got)
				if got.Err != nil || got.Token != want.Token {
					t.Errorf("%.4g at %g, %+v: token %d, %v; want %d", l[:5], temperature, p, got.Token, got.Err, want.Token)
				}
			}
		}
	}
}

func TestKeyOrder(t *testing.T) {
	v := []float32{-math.MaxFloat32, -1, -1e-40, 0, 1e-40, 1, math.MaxFloat32}
	for i := 1; i < len(v); i++ {
		if key(v[i-1]) >= key(v[i]) {
			t.Errorf("key(%v) >= key(%v)", v[i-1], v[i])
		}
	}
	if negative := float32(math.Copysign(0, -1)); key(negative) != key(0) {
		t.Error("-0 and +0 have different keys")
	}
}

const hashVector = 0xb056fb9f278507fb

func TestHashVector(t *testing.T) {
	// The expected value is Mix(Mix(Mix(seed+G) ^ i·G) ^ (t+1)·G), computed independently with
	// arbitrary-precision integers.
	seed, index, token := uint64(42), uint64(7), uint64(99)
	if got := splitmix.Mix(splitmix.Mix(splitmix.Mix(seed+splitmix.Golden)^index*splitmix.Golden) ^ (token+1)*splitmix.Golden); got != hashVector {
		t.Errorf("hash(42, 7, 99) = %#x, want %#x", got, uint64(hashVector))
	}
}

func TestNoAllocations(t *testing.T) {
	l := logits(8, 500)
	for _, p := range []engine.SamplingParams{{}, {Temperature: 1, TopP: 0.9, TopK: 40, MinP: 0.01}, {RepetitionPenalty: 1.1, Logprobs: true}} {
		s := bound(500, p)
		row := engine.Row{Sample: true, Digest: true}
		var o engine.RowOut
		if n := testing.AllocsPerRun(100, func() {
			row.SampleIndex++
			s.Sample(&row, 0, nil, l, &o)
		}); n != 0 {
			t.Errorf("%+v: %v allocations per sample", p, n)
		}
	}
}

func BenchmarkSample(b *testing.B) {
	l := logits(9, 32768)
	for name, p := range map[string]engine.SamplingParams{
		"greedy": {}, "top-p": {Temperature: 1, TopP: 0.9},
	} {
		b.Run("vocab=32768/params="+name, func(b *testing.B) {
			s := bound(len(l), p)
			var o engine.RowOut
			for b.Loop() {
				s.Sample(&engine.Row{Sample: true}, 0, nil, l, &o)
			}
		})
	}
}

// The candidates that gumbel skips are never the best: it returns the same token as a computation
// of all scores, for flat and steep, tiny and huge logits.
func TestGumbelReachesEveryToken(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	s := New(1, 4096)
	for trial := range 3000 {
		scale := math.Pow(10, -3+float64(trial%14)*0.7) // to 1e6
		s.ids = s.ids[:0]
		for i := range int32(1 + rng.IntN(600)) {
			s.work[i] = float32(rng.NormFloat64() * scale)
			if rng.IntN(4) > 0 {
				s.ids = append(s.ids, i)
			}
		}
		if len(s.ids) == 0 {
			continue
		}
		seed, index := rng.Uint64(), int32(rng.IntN(50))
		base := splitmix.Mix(splitmix.Mix(seed+splitmix.Golden) ^ uint64(uint32(index))*splitmix.Golden)
		want, score := s.ids[0], float32(math.Inf(-1))
		for _, id := range s.ids {
			u := uniform(splitmix.Mix(base ^ uint64(id+1)*splitmix.Golden))
			if v := s.work[id] - f32.Log32(-f32.Log32(u)); v > score {
				want, score = id, v
			}
		}
		if got := s.gumbel(seed, index); got != kv.Token(want) {
			t.Fatalf("trial %d, scale %g: token %d, want %d", trial, scale, got, want)
		}
	}
}
