package kernels_test

import (
	"fmt"
	"testing"

	"github.com/coppice-llm/coppice/engine/cuda/kernels"
	"github.com/coppice-llm/coppice/engine/cuda/ptxvm"
	"github.com/coppice-llm/coppice/internal/f32"
)

const (
	toBF16 = int32(iota)
	toF32
	addF32
	swiGLU
)

// product is one matrix product: c = a·wᵀ + bias.
type product struct {
	rows, columns, inner int
	a, w                 []uint16
	bias                 []float32
}

func newProduct(seed uint64, rows, columns, inner int) *product {
	g := seeded(seed)
	return &product{rows, columns, inner, bf16s(g, rows*inner, 1), bf16s(g, columns*inner, 0.1), floats(g, columns, 1)}
}

// rowsOf returns the product of rows [lo, hi).
func (p *product) rowsOf(lo, hi int) *product {
	q := *p
	q.rows, q.a = hi-lo, p.a[lo*p.inner:hi*p.inner]
	return &q
}

func (p *product) reference() []float64 {
	c := make([]float64, p.rows*p.columns)
	for m := range p.rows {
		for n := range p.columns {
			sum := float64(p.bias[n])
			for k := range p.inner {
				sum += widen(p.a[m*p.inner+k]) * widen(p.w[n*p.inner+k])
			}
			c[m*p.columns+n] = sum
		}
	}
	return c
}

// tryProduct launches a kernel of products with the grid for that many rows.
func (r *rig) tryProduct(g *kernels.GEMM, c, a, w, bias pointer, rows, columns, inner int, kind int32, live pointer) error {
	r.t.Helper()
	x, y := g.Grid(rows, columns)
	return r.try("gemm", g.Name, ptxvm.Dim{X: x, Y: y}, 256, g.SharedBytes, c, a, w, bias, int32(rows), int32(columns), int32(inner), kind, live)
}

func (r *rig) product(g *kernels.GEMM, c, a, w, bias pointer, rows, columns, inner int, kind int32, live pointer) {
	r.t.Helper()
	if err := r.tryProduct(g, c, a, w, bias, rows, columns, inner, kind, live); err != nil {
		r.t.Fatal(err)
	}
}

// run launches a kernel that stores its result in c as kind.
func (p *product) run(r *rig, g *kernels.GEMM, kind int32, c pointer) {
	r.t.Helper()
	r.product(g, c, put(r, p.a), put(r, p.w), put(r, p.bias), p.rows, p.columns, p.inner, kind, pointer(0))
}

func (p *product) f32(r *rig, g *kernels.GEMM) []float32 {
	r.t.Helper()
	c := r.room(4 * p.rows * p.columns)
	p.run(r, g, toF32, c)
	return get[float32](r, c, p.rows*p.columns)
}

// fits returns the kernels for that many rows, first the one for any number.
func fits(rows int) []*kernels.GEMM {
	all := kernels.GEMMs()
	fit := []*kernels.GEMM{&all[len(all)-1]}
	for i := range all[:len(all)-1] {
		if rows <= all[i].Rows {
			fit = append(fit, &all[i])
		}
	}
	return fit
}

// TestGEMM checks that each kernel is near the product in f64, and that the bits of all kernels are
// equal. Inner sizes have 8, 4, 2 and 1 slices; the last tile of columns is partial.
func TestGEMM(t *testing.T) {
	for _, size := range [][3]int{{5, 40, 256}, {16, 33, 128}, {30, 24, 64}, {64, 48, 96}, {64, 8, 2048}, {130, 132, 512}} {
		p := newProduct(1, size[0], size[1], size[2])
		want := p.reference()
		var first []float32
		for _, kernel := range fits(p.rows) {
			got := p.f32(newRig(t, "gemm"), kernel)
			near(t, fmt.Sprint(kernel.Name, size), wide(got), want, 1e-6)
			if first == nil {
				first = got
			}
			equal(t, fmt.Sprint(kernel.Name, size), got, first)
		}
	}
}

// TestGEMMRowsAlone checks that a row's bits do not depend on other rows, their number, or its place
// among them.
func TestGEMMRowsAlone(t *testing.T) {
	p := newProduct(2, 150, 40, 256)
	all := p.f32(newRig(t, "gemm"), kernels.GEMMFor(150))
	for _, span := range [][2]int{{0, 1}, {149, 150}, {37, 53}, {101, 128}, {60, 124}} {
		part := p.rowsOf(span[0], span[1])
		kernel := fits(part.rows)[min(1, len(fits(part.rows))-1)]
		equal(t, fmt.Sprint(kernel.Name, span), part.f32(newRig(t, "gemm"), kernel), all[span[0]*p.columns:span[1]*p.columns])
	}
}

// TestGEMMOutputs checks results rounded to bf16, and results added to previous values.
func TestGEMMOutputs(t *testing.T) {
	p := newProduct(3, 20, 40, 128)
	for _, kernel := range fits(p.rows) {
		r := newRig(t, "gemm")
		sums := p.f32(r, kernel)
		c := r.room(2 * len(sums))
		p.run(r, kernel, toBF16, c)
		rounded, added := make([]uint16, len(sums)), make([]float32, len(sums))
		base := floats(seeded(4), len(sums), 1)
		for i, s := range sums {
			rounded[i], added[i] = narrow(s), base[i]+s
		}
		equal(t, kernel.Name, get[uint16](r, c, len(sums)), rounded)
		x := put(r, base)
		p.run(r, kernel, addF32, x)
		equal(t, kernel.Name, get[float32](r, x, len(sums)), added)
	}
}

// TestGEMMReadsWeightsOnce checks that products of up to 64 rows load each byte of weights once.
func TestGEMMReadsWeightsOnce(t *testing.T) {
	for _, rows := range []int{1, 16, 17, 64} {
		p := newProduct(5, rows, 96, 256)
		r := newRig(t, "gemm")
		kernel := fits(rows)[1]
		w, c := put(r, p.w), r.room(4*rows*p.columns)
		r.product(kernel, c, put(r, p.a), w, pointer(0), rows, p.columns, p.inner, toF32, pointer(0))
		if got, want := r.m.ReadBytes(uint64(w)), int64(2*len(p.w)); got != want {
			t.Errorf("%s loads %d bytes of weights, want %d", kernel.Name, got, want)
		}
	}
}

// TestGEMMSwiGLU checks that each kernel stores the bits of f32.SiLUMul of its products. Columns
// alternate: four gates, then their four values.
func TestGEMMSwiGLU(t *testing.T) {
	p := newProduct(8, 20, 40, 128)
	r := newRig(t, "gemm")
	both := p.f32(r, kernels.GEMMFor(20))
	var want []uint16
	for at := 0; at < len(both); at += 8 {
		for i := at; i < at+4; i++ {
			want = append(want, narrow(f32.SiLUMul(both[i], both[i+4])))
		}
	}
	for _, kernel := range fits(p.rows) {
		out := r.room(p.rows * p.columns)
		p.run(r, kernel, swiGLU, out)
		equal(t, kernel.Name, get[uint16](r, out, p.rows*p.columns/2), want)
	}
}

// TestLive checks that a launch for more rows than the live count computes only the counted rows.
func TestLive(t *testing.T) {
	p := newProduct(9, 20, 40, 128)
	for _, kernel := range fits(p.rows) {
		r := newRig(t, "gemm")
		want := p.f32(r, kernel)
		c := r.room(4 * p.rows * p.columns)
		rows := kernel.Rows
		if rows == 0 {
			rows = 384
		}
		r.product(kernel, c, put(r, p.a), put(r, p.w), put(r, p.bias), rows, p.columns, p.inner, toF32, put(r, []int32{20}))
		equal(t, kernel.Name, get[float32](r, c, p.rows*p.columns), want)
	}
}
