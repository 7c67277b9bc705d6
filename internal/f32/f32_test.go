package f32

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
)

// exactFMA rounds the exact sum once, by math/big.
func exactFMA(a, b, c float32) float32 {
	p := new(big.Float).SetPrec(2000).SetFloat64(float64(a))
	p.Mul(p, new(big.Float).SetFloat64(float64(b)))
	p.Add(p, new(big.Float).SetFloat64(float64(c)))
	if p.Sign() == 0 {
		// big.Float knows no signed zero of a sum; f64 is exact here.
		return float32(float64(a)*float64(b) + float64(c))
	}
	r, _ := p.Float32()
	return r
}

// adversary draws operands whose sums crowd around the half-way points.
type adversary struct{ r *rand.Rand }

func (g adversary) float(lo, hi int) float32 {
	m := 1<<23 | uint32(g.r.IntN(1<<23))
	switch g.r.IntN(4) {
	case 0: // few bits
		m = 1<<23 | uint32(g.r.IntN(16))<<19
	case 1: // next to a power of two
		m = 1<<23 | uint32(g.r.IntN(4))
	case 2:
		m = 1<<24 - 1 - uint32(g.r.IntN(4))
	}
	f := float32(math.Ldexp(float64(m), g.r.IntN(hi-lo)+lo-23))
	if g.r.IntN(2) == 0 {
		return -f
	}
	return f
}

func TestFMA32RoundsOnce(t *testing.T) {
	g := adversary{rand.New(rand.NewPCG(1, 2))}
	naive := 0
	for i := range 400000 {
		var a, b, c float32
		switch i % 4 {
		case 0: // product half an ulp of c, and a little
			a, b, c = g.float(-2, 2), g.float(-28, -20), g.float(-1, 2)
		case 1: // subnormal results
			a, b, c = g.float(-80, -60), g.float(-90, -60), g.float(-149, -120)
		case 2: // near overflow
			a, b, c = g.float(60, 64), g.float(60, 64), g.float(100, 127)
		case 3:
			a, b, c = g.float(-30, 30), g.float(-30, 30), g.float(-60, 60)
		}
		want := exactFMA(a, b, c)
		got := FMA32(a, b, c)
		if math.Float32bits(got) != math.Float32bits(want) {
			t.Fatalf("fma(%x, %x, %x) = %x, want %x", a, b, c, got, want)
		}
		if r, ok := TryFMA(a, b, c); ok && r != want {
			t.Fatalf("TryFMA(%x, %x, %x) = %x was ok, want %x", a, b, c, r, want)
		}
		if float32(float64(a)*float64(b)+float64(c)) != want {
			naive++
		}
	}
	// The control: without the repair this test would have failed.
	if naive == 0 {
		t.Fatal("no operand needed the repair: the test proves nothing")
	}
	t.Logf("%d of 400000 need the repair", naive)
}

func TestFMA32Specials(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	zero := float32(0)
	for _, c := range [][4]float32{
		{1, 1, inf, inf}, {inf, 1, -inf, nan}, {inf, 0, 1, nan}, {nan, 1, 1, nan}, {1, 1, nan, nan},
		{0, 5, 0, 0}, {-zero, 5, 0, 0}, {1, 1, -1, 0}, {math.MaxFloat32, 2, 0, inf},
		{math.MaxFloat32, 1, -math.MaxFloat32, 0},
	} {
		got := FMA32(c[0], c[1], c[2])
		if got != c[3] && !(got != got && c[3] != c[3]) {
			t.Errorf("fma(%v, %v, %v) = %v, want %v", c[0], c[1], c[2], got, c[3])
		}
	}
	negZero := float32(math.Copysign(0, -1))
	if got := FMA32(negZero, 5, negZero); !math.Signbit(float64(got)) {
		t.Errorf("fma(-0, 5, -0) = %v, want -0", got)
	}
}

func ulps(got float32, want float64) float64 {
	w := float32(want)
	ulp := float64(math.Nextafter32(float32(math.Abs(float64(w))), math.MaxFloat32)) - math.Abs(float64(w))
	return math.Abs(float64(got)-want) / ulp
}

func TestExpLogError(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	var worstExp, worstLog float64
	for range 300000 {
		x := float32(r.Float64()*175 - 87)
		worstExp = max(worstExp, ulps(Exp32(x), math.Exp(float64(x))))
		y := math.Float32frombits(uint32(r.IntN(0x7f800000)))
		worstLog = max(worstLog, ulps(Log32(y), math.Log(float64(y))))
		y = 1 + float32(r.NormFloat64())*1e-3
		worstLog = max(worstLog, ulps(Log32(y), math.Log(float64(y))))
	}
	t.Logf("exp %.2f ulp, log %.2f ulp", worstExp, worstLog)
	if worstExp > 4 || worstLog > 1 {
		t.Errorf("errors: exp %.2f ulp, log %.2f ulp, want at most 4 and 1", worstExp, worstLog)
	}
}

func TestExpLogSpecials(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	for _, c := range []struct {
		name      string
		got, want float32
	}{
		{"exp(0)", Exp32(0), 1}, {"exp(-87.01)", Exp32(-87.01), 0}, {"exp(-inf)", Exp32(-inf), 0},
		{"exp(89)", Exp32(89), inf}, {"exp(inf)", Exp32(inf), inf}, {"exp(nan)", Exp32(nan), nan},
		{"log(0)", Log32(0), -inf}, {"log(-1)", Log32(-1), nan}, {"log(1)", Log32(1), 0},
		{"log(inf)", Log32(inf), inf}, {"log(nan)", Log32(nan), nan},
		{"silu(-200)", SiLUMul(-200, 3), 0}, {"silu(200)", SiLUMul(200, 3), 600},
	} {
		if c.got != c.want && !(c.got != c.got && c.want != c.want) {
			t.Errorf("%s = %v, want %v", c.name, c.got, c.want)
		}
	}
	if Exp32(88.7228) == inf {
		t.Error("exp(88.7228) overflows, the largest f32 is e^88.7228")
	}
}

// TestExpTwin compares the fast polynomial with the plain one.
func TestExpTwin(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for i := range 500000 {
		x := float32(r.Float64()*100 - 87)
		if i%2 == 0 {
			x = float32(int(x*8)) / 8 // few bits, where ties are common
		}
		n := float32(float32(x*log2e)+round) - round
		if y, ok := expTry(n, x); ok && y != expPoly(n, x) {
			t.Fatalf("x = %v: %v and %v differ", x, y, expPoly(n, x))
		}
	}
}

func TestSinCos(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	for i := range 200000 {
		x := float32(r.Float64() * 1 * math.Pow(2, float64(i%20)))
		s, c := SinCos(x)
		if e := max(ulps(s, math.Sin(float64(x))), ulps(c, math.Cos(float64(x)))); e > 0.51 {
			t.Fatalf("x = %v: sin %v, cos %v: %.3f ulp off", x, s, c, e)
		}
	}
	if s, c := SinCos(0); s != 0 || c != 1 {
		t.Errorf("SinCos(0) = %v, %v", s, c)
	}
}

// TestSums compares the unrolled sums with loops that follow their definition.
func TestSums(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 10))
	for _, n := range []int{16, 32, 64, 128} {
		for range 200 {
			a, b := make([]float32, n), make([]float32, n)
			for i := range a {
				a[i], b[i] = float32(r.NormFloat64()), float32(r.NormFloat64())
				if r.IntN(8) == 0 {
					a[i], b[i] = 0, float32(r.IntN(5))
				}
			}
			var v [16]float32
			for i := range a {
				if i < 16 {
					v[i] = float32(a[i] * b[i])
				} else {
					v[i%16] = exactFMA(a[i], b[i], v[i%16])
				}
			}
			for w := 8; w > 0; w /= 2 {
				for i := range w {
					v[i] += v[i+w]
				}
			}
			if got := Dot(a, b); got != v[0] {
				t.Fatalf("n = %d: Dot = %v, want %v", n, got, v[0])
			}
		}
	}
}

func BenchmarkFMA32(b *testing.B) {
	x := float32(0.3)
	var acc [8]float32
	for b.Loop() {
		for range 1000 {
			for j := range acc {
				acc[j] = FMA32(x, 1.37, acc[j])
			}
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/8000, "ns/fma")
}

func BenchmarkExp32(b *testing.B) {
	var sink float32
	for b.Loop() {
		for i := range 1000 {
			sink += Exp32(-float32(i) * 0.031)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1000, "ns/exp")
	_ = sink
}

func BenchmarkDot(b *testing.B) {
	x := make([]float32, 64)
	for i := range x {
		x[i] = float32(i)*0.37 + 0.1
	}
	var sink float32
	b.Run("n=16", func(b *testing.B) {
		for b.Loop() {
			sink += Dot(x[:16], x[16:32])
		}
	})
	b.Run("n=64", func(b *testing.B) {
		for b.Loop() {
			sink += Dot(x, x)
		}
	})
	_ = sink
}
