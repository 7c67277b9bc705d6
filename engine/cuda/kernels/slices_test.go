package kernels_test

import (
	"fmt"
	"testing"

	"github.com/coppice-llm/coppice/engine/cuda/kernels"
	"github.com/coppice-llm/coppice/engine/cuda/ptxvm"
)

// sliced runs the product by gemm_slices and gemm_sum, launched for that many rows, of which live counts
// those that there are.
func (p *product) sliced(r *rig, kind int32, c pointer, rows int, live pointer) {
	r.t.Helper()
	slices := kernels.Slices(rows, p.columns, p.inner, 132)
	if slices == 1 {
		r.t.Fatalf("%d rows and %d columns are not sliced", rows, p.columns)
	}
	parts, bias := r.room(4*slices*rows*p.columns), put(r, p.bias)
	up := func(n, of int) int { return (n + of - 1) / of }
	r.launch("gemm", "gemm_slices", ptxvm.Dim{X: up(p.columns, 128), Y: slices * up(rows, 128)}, 256, 0, parts, put(r, p.a), put(r, p.w),
		int32(rows), int32(p.columns), int32(p.inner), live)
	r.launch("gemm", "gemm_sum", ptxvm.Dim{X: up(p.columns, 256), Y: rows}, 256, 0, c, parts, bias, int32(rows), int32(p.columns), int32(p.inner), kind, live)
}

// TestSlices checks that slices in blocks of their own have the bits of gemm128, in every form of the
// result, for 8, 4 and 2 slices, a partial tile, and fewer rows than the launch is for.
func TestSlices(t *testing.T) {
	for i, size := range [][3]int{{65, 136, 256}, {130, 40, 128}, {70, 16, 64}, {65, 136, 256}} {
		p := newProduct(uint64(i), size[0], size[1], size[2])
		for _, kind := range []int32{toBF16, toF32, addF32, swiGLU} {
			r := newRig(t, "gemm")
			n := 4 * p.rows * p.columns
			want, got := put(r, make([]float32, n/4)), put(r, make([]float32, n/4))
			p.run(r, kernels.GEMMFor(p.rows), kind, want)
			rows, live := p.rows, pointer(0)
			if i == 3 {
				rows, live = 250, put(r, []int32{int32(p.rows)})
			}
			p.sliced(r, kind, got, rows, live)
			equal(t, fmt.Sprint(size, kind), get[uint32](r, got, n/4), get[uint32](r, want, n/4))
		}
	}
	for _, x := range []struct{ rows, columns, want int }{{64, 4096, 1}, {65, 4096, 8}, {256, 4096, 8}, {257, 4096, 1}, {65, 28672, 1}, {200, 8320, 8}, {200, 8448, 1}} {
		if got := kernels.Slices(x.rows, x.columns, 4096, 132); got != x.want {
			t.Errorf("%d rows by %d columns: %d slices, want %d", x.rows, x.columns, got, x.want)
		}
	}
}

// TestBands checks that gemm128 computes each block once if the rows of blocks fill no whole band.
func TestBands(t *testing.T) {
	p := newProduct(4, 128*8+5, 136, 32)
	near(t, "nine rows of blocks", wide(p.f32(newRig(t, "gemm"), kernels.GEMMFor(p.rows))), p.reference(), 1e-6)
}
