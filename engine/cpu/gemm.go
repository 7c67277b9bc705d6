package cpu

import (
	"math/bits"
	"unsafe"

	"github.com/coppice-llm/coppice/internal/f32"
)

// The portable kernels compute fma chains in f64. A product of two f32 is exact in f64; the sum with
// an f32 is rounded to f64 and then to f32. Where the first rounding lands half-way between two f32,
// its bits alone don't tell which way the exact sum lies, unless the f64 sum is exact. With bf16
// weights, whose products have 32 bits, about one sum in 200 lies half-way, and nearly all of these
// are exact. A kernel gives up at any other; the plain loop then computes groupK steps again.
//
// safe() proves beforehand that no sum of a row needs a bit below 2^-149; where it can't, the plain
// loop computes all.

// groupK is the number of k that a portable kernel computes before it stores its sums.
const groupK = 32

// blockRows is the number of activation rows that are interleaved in memory, see acts.
const blockRows = 4

// acts holds the inputs of a matrix product. Vector kernels read plain rows, [row][k], and so do the
// portable ones where float32 products and sums are fused. Elsewhere the portable kernels read them
// widened to f64, in blocks of four rows, [block][k][4], with the exponents of each row.
type acts struct {
	ops  *kernels
	k    int
	data []float64
	exps []exponents // by row
	rows []float32   // nil where data is set
	// records holds the rows quantised, recordStride(k) bytes each; nil if no product reads them.
	records []byte
	floats  bool // some product reads float rows; false if all read records
}

// newActs allocates memory for the given number of rows, of up to k values each. some reports
// whether some products have quantised weights, all whether all products have.
func newActs(ops *kernels, rows, k int, some, all bool) *acts {
	a := &acts{ops: ops, k: k, floats: !all}
	if some {
		a.records = make([]byte, rows*recordStride(k))
	}
	if ops.vector() || f32.Fuses() {
		a.rows = make([]float32, rows*k)
		return a
	}
	blocks := (rows + blockRows - 1) / blockRows
	a.data, a.exps = make([]float64, blocks*blockRows*k), make([]exponents, blocks*blockRows)
	return a
}

// place returns memory in which to compute a row before set is called for it: the row itself,
// so that set need not copy, or scratch where rows are not stored as floats.
func (a *acts) place(row int, scratch []float32) []float32 {
	if a.rows == nil || !a.floats {
		return scratch[:a.k]
	}
	return a.rows[row*a.k : (row+1)*a.k]
}

// setPairs stores silu(gate)·up for one panel of a paired matrix and the rows [lo, hi), as inputs
// of the next product. A panel has pairCols columns of gate and the same number of up. tile is
// [row][pairCols of gate, pairCols of up] and is overwritten.
func (a *acts) setPairs(tile []float32, panel, lo, hi int) {
	dst, stride := tile, vectorCols
	if a.floats {
		dst, stride = a.rows[lo*a.k+panel*pairCols:], a.k
	}
	a.ops.siluPairs(&dst[0], 4*stride, &tile[0], hi-lo)
	if a.records == nil {
		return
	}
	row := recordStride(a.k)
	for r := range hi - lo {
		a.ops.quantizeRow(a.records[(lo+r)*row+panel*recordBytes:], dst[r*stride:][:pairCols])
	}
}

// set stores a row as floats, as records or as both; len(v) == a.k.
func (a *acts) set(row int, v []float32) {
	if n := recordStride(a.k); a.records != nil && a.k%quantBlock == 0 {
		a.ops.quantizeRow(a.records[row*n:(row+1)*n], v)
	}
	if !a.floats {
		return
	}
	if a.rows != nil {
		if at := a.rows[row*a.k : (row+1)*a.k]; &at[0] != &v[0] {
			copy(at, v)
		}
		return
	}
	a.exps[row] = noExponents
	a.exps[row].add(v)
	dst := a.block(row / blockRows)[row%blockRows:]
	for i, x := range v {
		dst[i*blockRows] = float64(x)
	}
}

// block returns block b of the portable layout, [k][4].
func (a *acts) block(b int) []float64 {
	n := blockRows * a.k
	return a.data[b*n : (b+1)*n : (b+1)*n]
}

// safe reports whether the fast kernels are exact for the product of a's row and m. Two bounds
// must hold. No bit below 2^-149 is ever needed: a 24-bit factor's last bit is at most 23 places
// below its first, a product's at most 46. And k products of the largest size stay below 2^127.
func (a *acts) safe(row int, m *matrix) bool {
	e := a.exps[row]
	return e.lo+m.exps.lo-46 >= -149 && e.hi+m.exps.hi+2+bits.Len(uint(m.k))+1 <= 127
}

// gemmTile computes the columns of one panel for the rows [lo, hi) of a, in the portable path.
// lo is a multiple of blockRows; out is [row][m.stride()].
func gemmTile(out []float32, a *acts, m *matrix, panel, lo, hi int) {
	if f32.Fuses() {
		fusedTile(out, a, m, panel, lo, hi)
		return
	}
	for row := lo; row < hi; row += blockRows {
		if row+blockRows <= hi && a.safe(row, m) && a.safe(row+1, m) && a.safe(row+2, m) && a.safe(row+3, m) {
			tile4(out, a, m, panel, row)
			continue
		}
		for r := row; r < min(row+blockRows, hi); r++ {
			tile1(out, a, m, panel, r)
		}
	}
}

// tile4 computes four rows by one panel, two columns at a time. All four rows must be safe.
func tile4(out []float32, a *acts, m *matrix, panel, row int) {
	stride, x := m.stride(), groups[[blockRows]float64](a.block(row/blockRows))
	for c := panel * panelCols; c < (panel+1)*panelCols; c += 2 {
		var s [2 * blockRows]float32
		w := groups[[panelCols]float32](m.column(c))
		for k := 0; k < len(x); k += groupK {
			x, w := x[k:min(k+groupK, len(x))], w[k:]
			if !kernel4x2(x, w, &s) {
				for i := range s {
					s[i] = plainChain(x, w, i/2, i%2, s[i])
				}
			}
		}
		for r := range blockRows {
			o := out[(row+r)*stride+c:]
			o[0], o[1] = s[2*r], s[2*r+1]
		}
	}
}

// tile1 computes one row by one panel, by the plain loop if the row is not safe.
func tile1(out []float32, a *acts, m *matrix, panel, row int) {
	x, w := groups[[blockRows]float64](a.block(row/blockRows)), groups[[panelCols]float32](m.column(panel*panelCols))
	s := (*[panelCols]float32)(out[row*m.stride()+panel*panelCols:])
	clear(s[:])
	safe := a.safe(row, m)
	for k := 0; k < len(x); k += groupK {
		x, w := x[k:min(k+groupK, len(x))], w[k:]
		if !safe || !kernel1x8(x, row%blockRows, w, s) {
			for i := range s {
				s[i] = plainChain(x, w, row%blockRows, i, s[i])
			}
		}
	}
}

// groups returns v as a slice of arrays; what does not fill an array is left out.
func groups[A [blockRows]float64 | [panelCols]float32, T float32 | float64](v []T) []A {
	var a A
	return unsafe.Slice((*A)(unsafe.Pointer(unsafe.SliceData(v))), len(v)/len(a))
}

// plainChain returns the chain of s over all k of row r and column c, directly from the definition.
func plainChain(x [][blockRows]float64, w [][panelCols]float32, r, c int, s float32) float32 {
	for k := range x {
		s = f32.FMA32(float32(x[k][r]), w[k][c], s)
	}
	return s
}

// kernel4x2 adds the product of four rows x and the first two columns of w to s, [row][column]. It
// returns false and leaves s as it is where unsure reports true.
func kernel4x2(x [][blockRows]float64, w [][panelCols]float32, s *[2 * blockRows]float32) bool {
	s0, s1, s2, s3, s4, s5, s6, s7 := s[0], s[1], s[2], s[3], s[4], s[5], s[6], s[7]
	w = w[:len(x)]
	for k := range x {
		v, w0, w1 := &x[k], float64(w[k][0]), float64(w[k][1])
		sum := v[0]*w0 + float64(s0)
		if f32.Halfway(sum) && unsure(v[0], w0, s0) {
			return false
		}
		s0 = float32(sum)
		sum = v[0]*w1 + float64(s1)
		if f32.Halfway(sum) && unsure(v[0], w1, s1) {
			return false
		}
		s1 = float32(sum)
		sum = v[1]*w0 + float64(s2)
		if f32.Halfway(sum) && unsure(v[1], w0, s2) {
			return false
		}
		s2 = float32(sum)
		sum = v[1]*w1 + float64(s3)
		if f32.Halfway(sum) && unsure(v[1], w1, s3) {
			return false
		}
		s3 = float32(sum)
		sum = v[2]*w0 + float64(s4)
		if f32.Halfway(sum) && unsure(v[2], w0, s4) {
			return false
		}
		s4 = float32(sum)
		sum = v[2]*w1 + float64(s5)
		if f32.Halfway(sum) && unsure(v[2], w1, s5) {
			return false
		}
		s5 = float32(sum)
		sum = v[3]*w0 + float64(s6)
		if f32.Halfway(sum) && unsure(v[3], w0, s6) {
			return false
		}
		s6 = float32(sum)
		sum = v[3]*w1 + float64(s7)
		if f32.Halfway(sum) && unsure(v[3], w1, s7) {
			return false
		}
		s7 = float32(sum)
	}
	*s = [2 * blockRows]float32{s0, s1, s2, s3, s4, s5, s6, s7}
	return true
}

// kernel1x8 adds the product of row r of x and all columns of w to s. It returns false and leaves s as
// it is where unsure reports true.
func kernel1x8(x [][blockRows]float64, r int, w [][panelCols]float32, s *[panelCols]float32) bool {
	s0, s1, s2, s3, s4, s5, s6, s7 := s[0], s[1], s[2], s[3], s[4], s[5], s[6], s[7]
	w = w[:len(x)]
	for k := range x {
		v, w := x[k][r&(blockRows-1)], &w[k]
		sum := v*float64(w[0]) + float64(s0)
		if f32.Halfway(sum) && unsure(v, float64(w[0]), s0) {
			return false
		}
		s0 = float32(sum)
		sum = v*float64(w[1]) + float64(s1)
		if f32.Halfway(sum) && unsure(v, float64(w[1]), s1) {
			return false
		}
		s1 = float32(sum)
		sum = v*float64(w[2]) + float64(s2)
		if f32.Halfway(sum) && unsure(v, float64(w[2]), s2) {
			return false
		}
		s2 = float32(sum)
		sum = v*float64(w[3]) + float64(s3)
		if f32.Halfway(sum) && unsure(v, float64(w[3]), s3) {
			return false
		}
		s3 = float32(sum)
		sum = v*float64(w[4]) + float64(s4)
		if f32.Halfway(sum) && unsure(v, float64(w[4]), s4) {
			return false
		}
		s4 = float32(sum)
		sum = v*float64(w[5]) + float64(s5)
		if f32.Halfway(sum) && unsure(v, float64(w[5]), s5) {
			return false
		}
		s5 = float32(sum)
		sum = v*float64(w[6]) + float64(s6)
		if f32.Halfway(sum) && unsure(v, float64(w[6]), s6) {
			return false
		}
		s6 = float32(sum)
		sum = v*float64(w[7]) + float64(s7)
		if f32.Halfway(sum) && unsure(v, float64(w[7]), s7) {
			return false
		}
		s7 = float32(sum)
	}
	*s = [panelCols]float32{s0, s1, s2, s3, s4, s5, s6, s7}
	return true
}

// unsure reports whether x·w+s, rounded to f64, may be rounded wrongly to f32. The caller has found
// that it lies half-way between two f32.
//
//go:noinline
func unsure(x, w float64, s float32) bool {
	p, a := x*w, float64(s)
	sum := p + a
	b := sum - p
	return (p-(sum-b))+(a-b) != 0 // the error of the sum (Knuth's TwoSum)
}
