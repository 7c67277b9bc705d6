package cpu

import (
	"math"
	"math/bits"

	"github.com/coppice-llm/coppice/internal/f32"
)

// The kernels compute fma chains in f64 registers that hold f32 values. Products
// of two f32 are exact in f64; fround then rounds the sum to 24 bits by integer
// arithmetic on its bits. A kernel gives up where the f64 sum was rounded and
// landed on a tie of f32: its bits alone don't tell which way the exact sum lies. The plain
// loop then computes the tile again; on random data that is about once in 2^29 steps.
//
// An f64 does not have the exponent limits of f32. safe() proves beforehand that no sum of a
// row can overflow or need a bit below 2^-149; where it can't, the plain loop runs as well.
const (
	lowBits = 1<<29 - 1 // bits of an f64 that an f32 lacks
	halfUlp = 1 << 28   // of an f32, in an f64's bits
	f32Ulp  = 1 << 29
)

// fround returns p+a rounded once to the 24 bits of an f32, ties to even. ok is false where
// the f64 sum does not determine that. Exact ties are resolved here because they are common:
// a product with a bf16 weight has 8+24 = 32 bits. The function must stay small enough to be
// inlined.
func fround(p, a float64) (r float64, ok bool) {
	s := p + a
	u := math.Float64bits(s) + halfUlp
	v := u &^ lowBits
	if v == u { // a tie, so far rounded away from zero
		b := s - p
		if (p-(s-b))+(a-b) != 0 { // the error of the sum (Knuth's TwoSum)
			return 0, false
		}
		v &^= f32Ulp
	}
	return math.Float64frombits(v), true
}

// blockRows is the number of activation rows that are interleaved in memory, see acts.
const blockRows = 4

// acts holds the inputs of a matrix product. The portable kernels read them widened to f64, in
// blocks of four rows, [block][k][4], with the exponents of each row; the vector kernels read
// plain rows, [row][k].
type acts struct {
	ops  *kernels
	k    int
	data []float64
	exps []exponents // by row
	rows []float32   // nil in the portable path
	// records holds the rows quantised, [row][k/32] records; nil if no product reads them.
	records []byte
	floats  bool // some product reads float rows; false if all read records
}

// newActs allocates memory for the given number of rows, of up to k values each. some reports
// whether some products have quantised weights, all whether all products have.
func newActs(ops *kernels, rows, k int, some, all bool) *acts {
	a := &acts{ops: ops, k: k, floats: !all}
	if some {
		a.records = make([]byte, rows*((k+quantBlock-1)/quantBlock)*recordBytes)
	}
	if ops.vector() {
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
	blocks := a.k / quantBlock
	for r := range hi - lo {
		a.ops.quantize(&a.records[((lo+r)*blocks+panel)*recordBytes], &dst[r*stride], 1)
	}
}

// set stores a row as floats, as records or as both; len(v) == a.k.
func (a *acts) set(row int, v []float32) {
	if n := a.k / quantBlock * recordBytes; a.records != nil && a.k%quantBlock == 0 {
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
	stride, x := m.stride(), a.block(row/blockRows)
	for c := panel * panelCols; c < (panel+1)*panelCols; c += 2 {
		var s [8]float64
		if !kernel4x2(x, m.column(c), &s) {
			for r := row; r < row+blockRows; r++ {
				plain(out, a, m, c, c+2, r)
			}
			continue
		}
		o := row*stride + c
		out[o], out[o+1] = float32(s[0]), float32(s[1])
		o += stride
		out[o], out[o+1] = float32(s[2]), float32(s[3])
		o += stride
		out[o], out[o+1] = float32(s[4]), float32(s[5])
		o += stride
		out[o], out[o+1] = float32(s[6]), float32(s[7])
	}
}

// tile1 computes one row by one panel, by the plain loop if the row is not safe.
func tile1(out []float32, a *acts, m *matrix, panel, row int) {
	c := panel * panelCols
	var s [8]float64
	x := a.block(row / blockRows)[row%blockRows:]
	if !a.safe(row, m) || !kernel1x8(x, m.column(c), &s) {
		plain(out, a, m, c, c+panelCols, row)
		return
	}
	o := out[row*m.stride()+c:]
	for i := range s {
		o[i] = float32(s[i])
	}
}

// plain computes columns [lo, hi) of a row directly from the definition: one f32 fma chain
// over ascending k.
func plain(out []float32, a *acts, m *matrix, lo, hi, row int) {
	x := a.block(row / blockRows)[row%blockRows:]
	for c := lo; c < hi; c++ {
		w, s := m.column(c), float32(0)
		for k := range m.k {
			s = f32.FMA32(float32(x[k*blockRows]), w[k*panelCols], s)
		}
		out[row*m.stride()+c] = s
	}
}

// kernel4x2 multiplies four rows x, [k][4], by the first two columns of w, [k][8]. s is
// [row][column] and starts at zero. It returns false as soon as fround does.
func kernel4x2(x []float64, w []float32, s *[8]float64) (ok bool) {
	a0, a1, b0, b1 := s[0], s[1], s[2], s[3]
	c0, c1, d0, d1 := s[4], s[5], s[6], s[7]
	for len(x) >= blockRows && len(w) >= panelCols {
		w0, w1 := float64(w[0]), float64(w[1])
		v := x[0]
		if a0, ok = fround(v*w0, a0); !ok {
			return false
		}
		if a1, ok = fround(v*w1, a1); !ok {
			return false
		}
		v = x[1]
		if b0, ok = fround(v*w0, b0); !ok {
			return false
		}
		if b1, ok = fround(v*w1, b1); !ok {
			return false
		}
		v = x[2]
		if c0, ok = fround(v*w0, c0); !ok {
			return false
		}
		if c1, ok = fround(v*w1, c1); !ok {
			return false
		}
		v = x[3]
		if d0, ok = fround(v*w0, d0); !ok {
			return false
		}
		if d1, ok = fround(v*w1, d1); !ok {
			return false
		}
		x, w = x[blockRows:], w[panelCols:]
	}
	*s = [8]float64{a0, a1, b0, b1, c0, c1, d0, d1}
	return true
}

// kernel1x8 multiplies one row by all eight columns of w, [k][8]. x is [k][4], starting at the
// row's first element; s starts at zero. It returns false as soon as fround does.
func kernel1x8(x []float64, w []float32, s *[8]float64) (ok bool) {
	s0, s1, s2, s3, s4, s5, s6, s7 := s[0], s[1], s[2], s[3], s[4], s[5], s[6], s[7]
	for k := 0; k < len(x) && len(w) >= panelCols; k += blockRows {
		v := x[k]
		if s0, ok = fround(v*float64(w[0]), s0); !ok {
			return false
		}
		if s1, ok = fround(v*float64(w[1]), s1); !ok {
			return false
		}
		if s2, ok = fround(v*float64(w[2]), s2); !ok {
			return false
		}
		if s3, ok = fround(v*float64(w[3]), s3); !ok {
			return false
		}
		if s4, ok = fround(v*float64(w[4]), s4); !ok {
			return false
		}
		if s5, ok = fround(v*float64(w[5]), s5); !ok {
			return false
		}
		if s6, ok = fround(v*float64(w[6]), s6); !ok {
			return false
		}
		if s7, ok = fround(v*float64(w[7]), s7); !ok {
			return false
		}
		w = w[panelCols:]
	}
	*s = [8]float64{s0, s1, s2, s3, s4, s5, s6, s7}
	return true
}
