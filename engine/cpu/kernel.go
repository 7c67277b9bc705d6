package cpu

import (
	"math"
	"unsafe"

	"github.com/coppice-llm/coppice/internal/f32"
	"github.com/coppice-llm/coppice/kv"
)

// kernels are the inner loops of one path. The portable path has none of the
// functions: what is nil here is done in Go. tools/avo generates the others; its
// comments beside their stubs say what each does.
//
// A vector kernel equals its portable twin bit for bit, for each element is the
// same chain of the same roundings: lanes run across output columns in products,
// and where lanes run along a sum, they are the 16 lanes of the definition. NaNs
// may differ in sign and payload, which no result shows.
type kernels struct {
	isa   ISA
	tiles []tile      // most rows first, the last has one
	quant []quantTile // the same for quantised weights
	// biased says that these want the table of nibbles plus 128.
	biased bool

	scores  func(dst *float32, dstStride int, q, k *float32, n, dim, group int, scale float32)
	softmax func(s *float32, n int, sum *float32)
	values  func(out, w *float32, wStride int, v *float32, n, dim, group int)
	squares func(x *float32, n int, sum *float32)
	scale   func(dst, x, w *float32, r float32, n int)
	silu    func(dst, g, u *float32, n int)
	stream  func(p *uint32, n int) uint32

	quantize  func(dst *byte, x *float32, blocks int)
	widenF16  func(dst *float32, src *uint16, n int)
	widenBF16 func(dst *float32, src *uint16, n int)
	widenQ8   func(dst *float32, src *byte, rows, dim int)
}

// portable is the path in plain Go.
var portable = kernelsOf(Portable)

// widen writes n rows of dim elements of type d, not F32, as f32.
func (k *kernels) widen(d kv.DType, dst []float32, src []byte, n, dim int) {
	_, _ = dst[n*dim-1], src[d.Size(n*dim)-1]
	switch d {
	case kv.F16:
		k.widenF16(&dst[0], (*uint16)(unsafe.Pointer(&src[0])), n*dim)
	case kv.BF16:
		k.widenBF16(&dst[0], (*uint16)(unsafe.Pointer(&src[0])), n*dim)
	case kv.Q8_0:
		k.widenQ8(&dst[0], &src[0], n, dim)
	}
}

// tile is one shape of the matrix product: rows of activations by some columns of
// a panel, for each start in columns.
type tile struct {
	rows    int
	columns []int
	f32     func(out *float32, outStride int, a *float32, aStride int, w *float32, k, first, fetch, fetchStep int)
	bf16    func(out *float32, outStride int, a *float32, aStride int, w *uint32, k, first, fetch, fetchStep int)
}

// vector tells whether the path has kernels of its own.
func (k *kernels) vector() bool { return k.tiles != nil }

// sums is where a kernel leaves the 16 lanes of a sum. It lives in a worker's
// scratch: a local one would escape through the function values.
type sums [f32.Lanes]float32

// norm is f32.RMSNorm.
func (k *kernels) norm(dst, x, w []float32, eps float32, s *sums) {
	if !k.vector() {
		f32.RMSNorm(dst, x, w, eps)
		return
	}
	n := len(x)
	_, _ = dst[n-1], w[n-1]
	k.squares(&x[0], n, &s[0])
	mean := float32(f32.Tree16((*[f32.Lanes]float32)(s)) / float32(n))
	k.scale(&dst[0], &x[0], &w[0], 1/f32.Sqrt32(mean+eps), n)
}

// gate writes silu(g)·u.
func (k *kernels) gate(dst, g, u []float32) {
	n := len(g)
	dst, u = dst[:n], u[:n]
	done := 0
	if k.vector() && n >= f32.Lanes {
		done = n &^ (f32.Lanes - 1)
		k.silu(&dst[0], &g[0], &u[0], done)
	}
	for i := done; i < n; i++ {
		dst[i] = f32.SiLUMul(g[i], u[i])
	}
}

// paddedScores is how many places attend needs for n scores of one head.
func paddedScores(n int) int { return (n + f32.Lanes - 1) &^ (f32.Lanes - 1) }

// attend is arena.attend with the scratch of a worker.
func (k *kernels) attend(a *arena, w *scratch, out, q []float32, pages []kv.PageID, layer, head, group, n int, scale float32) {
	if !k.vector() {
		a.attend(w, out, q, pages, layer, head, group, n, scale)
		return
	}
	stride := paddedScores(n)
	scores := w.scores[:group*stride]
	for p := 0; p < n; p += a.tokens {
		end := min(a.tokens, n-p)
		part := a.rows(k, w.rows, pages[p/a.tokens], halfK(layer), head, end)
		k.scores(&scores[p], 4*stride, &q[0], &part[0], end, a.dim, group, scale)
	}
	for g := range group {
		row := scores[g*stride : (g+1)*stride]
		for p := n; p < stride; p++ {
			row[p] = float32(math.Inf(-1)) // weighs nothing
		}
		k.softmax(&row[0], stride, &w.sums[0])
		w.inverse[g] = 1 / f32.Tree16((*[f32.Lanes]float32)(&w.sums))
	}
	clear(out)
	for p := 0; p < n; p += a.tokens {
		end := min(a.tokens, n-p)
		part := a.rows(k, w.rows, pages[p/a.tokens], halfV(layer), head, end)
		k.values(&out[0], &scores[p], 4*stride, &part[0], end, a.dim, group)
	}
	for i := range out {
		out[i] = float32(out[i] * w.inverse[i/a.dim])
	}
}
