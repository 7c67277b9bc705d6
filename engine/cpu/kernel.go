package cpu

import (
	"math"
	"unsafe"

	"github.com/coppice-llm/coppice/internal/f32"
	"github.com/coppice-llm/coppice/kv"
)

// kernels holds the inner loops of one path. In the portable path all functions are nil, and Go
// code runs in their place. tools/avo and tools/neon generate the kernels of the other paths; the
// comments at their stubs (kernel_avx2_amd64.go) document each one.
//
// A vector kernel equals its portable twin bit for bit, because it computes each element by the
// same chain of the same roundings. In products the elements of a vector register are different
// output columns. Where they belong to one sum, they are the 16 partial sums by which package f32
// defines that sum. NaNs may differ in sign and payload, which no result shows.
type kernels struct {
	isa   ISA
	tiles []tile        // most rows first, the last has one
	quant *quantKernels // the same for quantised weights
	quads bool          // panels of float weights hold blocks of four k, see vectorCols

	scores  func(dst *float32, dstStride int, q, k *float32, n, dim, group int, scale float32)
	softmax func(s *float32, n int, sum *float32)
	values  func(out, w *float32, wStride int, v *float32, n, dim, group int)
	squares func(x *float32, n int, sum *float32)
	scale   func(dst, x, w *float32, r float32, n int)
	silu    func(dst, g, u *float32, n int)
	stream  func(p *uint32, n int) uint32

	siluPairs func(dst *float32, dstStride int, tile *float32, rows int)

	add    func(dst, x *float32, n int)
	rotate func(x, cos, sin *float32, half int)
	fetch  func(p *byte, n int)

	quantize  func(dst *byte, x *float32, blocks int)
	narrowF16 func(dst *uint16, src *float32, n int)
	widenF16  func(dst *float32, src *uint16, n int)
	widenBF16 func(dst *float32, src *uint16, n int)
	widenQ8   func(dst *float32, src *byte, rows, dim int)
}

// portable is the path in plain Go, used where a caller needs it whatever the ISA.
var portable = kernelsOf(Portable)

// widen converts n rows of dim elements from type d to f32. d is not F32; only vector paths
// call it.
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

// narrow converts x, one row, to type d, which is not F32. len(x) is a multiple of 16.
func (k *kernels) narrow(d kv.DType, dst []byte, x []float32) {
	if d != kv.F16 || !k.vector() {
		encodeRow(d, dst, x)
		return
	}
	_ = dst[2*len(x)-1]
	k.narrowF16((*uint16)(unsafe.Pointer(&dst[0])), &x[0], len(x))
}

// halfKernel is a kernel of tile for weights of 16 bits, two in each word of w. It multiplies rows
// of a by k rows of w. The strides are in bytes. If first is 0, the products are added to out,
// else out starts from zero. For each 64 bytes of weights the kernel prefetches fetchStep bytes,
// beginning at w+fetch.
type halfKernel func(out *float32, outStride int, a *float32, aStride int, w *uint32, k, first, fetch, fetchStep int)

// tile holds the kernels of one shape. A kernel multiplies several rows of activations by some
// columns of a panel. To cover a panel, it is called once for each entry of columns, its first
// column.
type tile struct {
	rows    int
	columns []int
	f32     func(out *float32, outStride int, a *float32, aStride int, w *float32, k, first, fetch, fetchStep int)
	bf16    halfKernel
	f16     halfKernel
}

// sums receives the 16 partial sums of a sum from a kernel. It lives in a worker's scratch,
// because a local variable would escape to the heap: kernels are called through function values.
type sums [f32.Lanes]float32

// norm writes f32.RMSNorm of x with weights w to dst. s is scratch.
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

// gate writes silu(g)·u to dst, element by element.
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

// addTo adds y to x; both have the same length.
func (k *kernels) addTo(x, y []float32) {
	if k.vector() {
		_ = y[len(x)-1]
		k.add(&x[0], &y[0], len(x))
		return
	}
	for i := range x {
		x[i] += y[i]
	}
}

// rotateBy applies the rotary embedding of position p to one head, in place.
func (k *kernels) rotateBy(head []float32, r *rope, p int) {
	if !k.vector() {
		r.rotate(head, p)
		return
	}
	_, _, _ = head[2*r.half-1], r.cos[(p+1)*r.half-1], r.sin[(p+1)*r.half-1]
	k.rotate(&head[0], &r.cos[p*r.half], &r.sin[p*r.half], r.half)
}

// attend computes attention of consecutive tokens of one sequence for the query heads that share
// one kv head. count is the number of tokens, group the number of these query heads, head the
// index of the kv head. Token t, from 0, sees positions [0, n+t). q is [count][group][dim]; dst
// has the same shape, with its tokens stride elements apart. A page that every token sees in full
// is read once for all tokens. The pages after those are also read once per call, but scored token
// by token.
func (k *kernels) attend(a *arena, w *scratch, dst []float32, stride int, q []float32, pages []kv.PageID, layer, head, group, n, count int, scale float32) {
	width := group * a.dim
	if !k.vector() {
		for t := range count {
			a.attend(w, dst[t*stride:][:width], q[t*width:(t+1)*width], pages, layer, head, group, n+t, scale)
		}
		return
	}
	lanes, common := paddedScores(n+count-1), n/a.tokens*a.tokens
	scores, out := w.scores[:count*group*lanes], w.heads[:count*width]
	for p := 0; p < common; p += a.tokens {
		k.fetchNext(a, pages[p/a.tokens+1:], halfK(layer), head, count)
		part := a.rows(k, w.rows, pages[p/a.tokens], halfK(layer), head, a.tokens)
		k.scores(&scores[p], 4*lanes, &q[0], &part[0], a.tokens, a.dim, count*group, scale)
	}
	for p := common; p < n+count-1; p += a.tokens {
		part := a.rows(k, w.rows, pages[p/a.tokens], halfK(layer), head, min(a.tokens, n+count-1-p))
		for t := max(0, p-n+1); t < count; t++ {
			k.scores(&scores[t*group*lanes+p], 4*lanes, &q[t*width], &part[0], min(a.tokens, n+t-p), a.dim, group, scale)
		}
	}
	for g := range count * group {
		row := scores[g*lanes:][:paddedScores(n+g/group)]
		for p := n + g/group; p < len(row); p++ {
			row[p] = float32(math.Inf(-1)) // padding: its weight is e^-∞ = 0
		}
		k.softmax(&row[0], len(row), &w.sums[0])
		w.inverse[g] = 1 / f32.Tree16((*[f32.Lanes]float32)(&w.sums))
	}
	clear(out)
	for p := 0; p < common; p += a.tokens {
		k.fetchNext(a, pages[p/a.tokens+1:], halfV(layer), head, count)
		part := a.rows(k, w.rows, pages[p/a.tokens], halfV(layer), head, a.tokens)
		k.values(&out[0], &scores[p], 4*lanes, &part[0], a.tokens, a.dim, count*group)
	}
	for p := common; p < n+count-1; p += a.tokens {
		part := a.rows(k, w.rows, pages[p/a.tokens], halfV(layer), head, min(a.tokens, n+count-1-p))
		for t := max(0, p-n+1); t < count; t++ {
			k.values(&out[t*width], &scores[t*group*lanes+p], 4*lanes, &part[0], min(a.tokens, n+t-p), a.dim, group)
		}
	}
	for g := range count * group {
		k.scale(&dst[g/group*stride+g%group*a.dim], &out[g*a.dim], &w.ones[0], w.inverse[g], a.dim)
	}
}

// vector reports whether the path has vector kernels, that is, is not Portable.
func (k *kernels) vector() bool { return k.tiles != nil }

// paddedScores returns n rounded up to a multiple of 16: the room that attend needs for n
// scores of one head.
func paddedScores(n int) int { return (n + f32.Lanes - 1) &^ (f32.Lanes - 1) }

// fetchNext prefetches a head's rows of pages[0] while the page before it is computed. Consecutive
// pages of a sequence are far apart in the arena, so the hardware prefetcher does not predict
// them. fetchNext does nothing if count, the number of tokens in the run, is above 1: their work
// on a page is long enough, and they find the next page in the second-level cache.
func (k *kernels) fetchNext(a *arena, pages []kv.PageID, half, head, count int) {
	if count > 1 || len(pages) == 0 {
		return
	}
	if part := a.part(pages[0], half, head); len(part) >= 64 {
		k.fetch(&part[0], len(part)&^63)
	}
}
