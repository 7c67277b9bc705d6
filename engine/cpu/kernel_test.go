package cpu

import (
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/coppice-llm/coppice/internal/f32"
)

// nasty fills v with values of kind: plain, few bits (ties are common), spread
// over all exponents, tiny, huge, or with NaN and infinities.
func nasty(r *rand.Rand, v []float32, kind int) {
	for i := range v {
		x := float32(r.NormFloat64())
		switch kind {
		case 1:
			x = math.Float32frombits(math.Float32bits(x) &^ 0xffff)
		case 2:
			x = float32(math.Ldexp(float64(x), r.IntN(250)-125))
		case 3:
			x = float32(math.Ldexp(float64(x), -r.IntN(150)))
		case 4:
			x = float32(math.Ldexp(float64(x), r.IntN(127)))
		case 5:
			if r.IntN(50) == 0 {
				x = []float32{float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1))}[r.IntN(3)]
			}
		case 6:
			x = float32(r.IntN(5) - 2)
		}
		if r.IntN(9) == 0 {
			x = 0
		}
		v[i] = x
	}
}

func sameBits(a, b float32) bool {
	return math.Float32bits(a) == math.Float32bits(b) || a != a && b != b
}

// TestProductEqualsPlain compares the kernels with the chain of FMA32, for all kinds of inputs
// on both sides. It also checks that the fast kernels ran at all.
func TestProductEqualsPlain(t *testing.T) {
	const kinds = 7
	r := rand.New(rand.NewPCG(1, 2))
	fast := 0
	for trial := range 600 {
		rows, k, n := 1+r.IntN(9), 1+r.IntN(80), 1+r.IntN(20)
		m := &matrix{n: n, k: k, cols: panelCols, exps: noExponents}
		m.panels = make([]float32, m.panelCount()*panelCols*k+panelCols)
		w := make([][]float32, n)
		for c := range w {
			w[c] = make([]float32, k)
			nasty(r, w[c], trial%kinds)
			m.exps.add(w[c])
			for i, x := range w[c] {
				m.column(c)[i*panelCols] = x
			}
		}
		a := newActs(portable, rows, k, false, false)
		a.k = k
		x := make([][]float32, rows)
		for i := range x {
			x[i] = make([]float32, k)
			nasty(r, x[i], trial/kinds%kinds)
			a.set(i, x[i])
			if f32.Fuses() || a.safe(i, m) {
				fast++
			}
		}
		out := make([]float32, rows*m.stride())
		for p := range m.panelCount() {
			gemmTile(out, a, m, p, 0, rows)
		}
		for i := range x {
			for c := range w {
				want := float32(0)
				for j := range k {
					want = f32.FMA32(x[i][j], w[c][j], want)
				}
				if got := out[i*m.stride()+c]; !sameBits(got, want) {
					t.Fatalf("trial %d: row %d column %d of %dx%dx%d is %x, want %x", trial, i, c, rows, k, n, got, want)
				}
			}
		}
	}
	if fast < 500 {
		t.Errorf("only %d rows took the kernels", fast)
	}
}

// TestValuesEqualPlain compares the weighted sum of values with the chain of FMA32.
func TestValuesEqualPlain(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	used := 0
	for trial := range 2000 {
		n := 1 + r.IntN(30)
		w, v := make([]float32, n), make([]float32, n*16)
		for i := range w {
			w[i] = f32.Exp32(-float32(r.ExpFloat64() * []float64{1, 10, 40}[trial%3]))
		}
		nasty(r, v, trial/3%7)
		var acc, got, want [8]float64
		for i := range acc {
			acc[i] = float64(float32(r.NormFloat64()))
		}
		got, want = acc, acc
		plainValues(&want, w, v[8:], 16)
		if !values8(&got, w, v[8:], 16) {
			continue
		}
		used++
		for i := range got {
			if !sameBits(float32(got[i]), float32(want[i])) {
				t.Fatalf("trial %d: column %d is %x, want %x", trial, i, got[i], want[i])
			}
		}
	}
	if used < 500 {
		t.Errorf("only %d of 2000 took the kernel", used)
	}
}

// TestWorkersRunEachUnitOnce counts units over many phases, with workers that
// park at once, sometimes, and hardly ever.
func TestWorkersRunEachUnitOnce(t *testing.T) {
	counts := make([]int, 1000)
	for _, patience := range []int{0, 3, spins} {
		w := newWorkers(4, patience, func(_, u int) { counts[u]++ })
		for n := range 1000 {
			n = n * 7 % 1000
			clear(counts)
			w.do(n, n%29 == 0)
			for u, c := range counts {
				if (u < n) != (c == 1) {
					t.Fatalf("patience %d, %d units: unit %d ran %d times", patience, n, u, c)
				}
			}
		}
		w.close()
	}
}

// view returns the n elements from p on.
func view(p *float32, n int) []float32 { return unsafe.Slice(p, n) }
