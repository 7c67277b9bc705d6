package cpu

import "github.com/coppice-llm/coppice/kv"

// Where the compiler fuses float32 products and sums (f32.Fuses), the portable products are plain
// loops over rows of f32, and exact for every input.

// fusedTile computes gemmTile for rows of f32.
func fusedTile(out []float32, a *acts, m *matrix, panel, lo, hi int) {
	w := groups[[panelCols]float32](m.column(panel * panelCols))
	stride := m.stride()
	row := lo
	for ; row+4 <= hi; row += 4 {
		x := a.rows[row*m.k : (row+4)*m.k]
		for c := 0; c < panelCols; c += 4 {
			fused4x4(out[row*stride+panel*panelCols+c:], stride, x, w, c)
		}
	}
	for ; row < hi; row++ {
		fused1x8((*[panelCols]float32)(out[row*stride+panel*panelCols:]), a.rows[row*m.k:(row+1)*m.k], w)
	}
}

// fused4x4 multiplies four rows x, [4][len(w)], by the columns [c, c+4) of w. The rows of out are
// stride elements apart.
func fused4x4(out []float32, stride int, x []float32, w [][panelCols]float32, c int) {
	n := len(w)
	x0, x1, x2, x3 := x[:n], x[n:][:n], x[2*n:][:n], x[3*n:][:n]
	var s00, s01, s02, s03, s10, s11, s12, s13, s20, s21, s22, s23, s30, s31, s32, s33 float32
	for k := range w {
		v := (*[4]float32)(w[k][c&4:])
		w0, w1, w2, w3 := v[0], v[1], v[2], v[3]
		a := x0[k]
		s00, s01, s02, s03 = a*w0+s00, a*w1+s01, a*w2+s02, a*w3+s03
		a = x1[k]
		s10, s11, s12, s13 = a*w0+s10, a*w1+s11, a*w2+s12, a*w3+s13
		a = x2[k]
		s20, s21, s22, s23 = a*w0+s20, a*w1+s21, a*w2+s22, a*w3+s23
		a = x3[k]
		s30, s31, s32, s33 = a*w0+s30, a*w1+s31, a*w2+s32, a*w3+s33
	}
	*(*[4]float32)(out) = [4]float32{s00, s01, s02, s03}
	*(*[4]float32)(out[stride:]) = [4]float32{s10, s11, s12, s13}
	*(*[4]float32)(out[2*stride:]) = [4]float32{s20, s21, s22, s23}
	*(*[4]float32)(out[3*stride:]) = [4]float32{s30, s31, s32, s33}
}

// fused1x8 multiplies one row by all columns of w.
func fused1x8(out *[panelCols]float32, x []float32, w [][panelCols]float32) {
	var s0, s1, s2, s3, s4, s5, s6, s7 float32
	w = w[:len(x)]
	for k, a := range x {
		v := &w[k]
		s0, s1, s2, s3 = a*v[0]+s0, a*v[1]+s1, a*v[2]+s2, a*v[3]+s3
		s4, s5, s6, s7 = a*v[4]+s4, a*v[5]+s5, a*v[6]+s6, a*v[7]+s7
	}
	*out = [panelCols]float32{s0, s1, s2, s3, s4, s5, s6, s7}
}

// fusedValues computes values without its last product: it adds the weighted values to out.
func (a *arena) fusedValues(w *scratch, out, weights []float32, pages []kv.PageID, layer, head int) {
	const cols = 8 // dim is a multiple of 16
	for p := 0; p < len(weights); p += a.tokens {
		part := weights[p:min(p+a.tokens, len(weights))]
		v := a.rows(portable, w.rows, pages[p/a.tokens], halfV(layer), head, len(part))
		for d := 0; d < a.dim; d += cols {
			fusedValues8((*[cols]float32)(out[d:]), part, v[d:], a.dim)
		}
	}
}

// fusedValues8 adds Σ_p w_p·v_p to eight columns; v is [p][dim], starting at the first column.
func fusedValues8(acc *[8]float32, w, v []float32, dim int) {
	s0, s1, s2, s3, s4, s5, s6, s7 := acc[0], acc[1], acc[2], acc[3], acc[4], acc[5], acc[6], acc[7]
	for p, a := range w {
		v := (*[8]float32)(v[p*dim:])
		s0, s1, s2, s3 = a*v[0]+s0, a*v[1]+s1, a*v[2]+s2, a*v[3]+s3
		s4, s5, s6, s7 = a*v[4]+s4, a*v[5]+s5, a*v[6]+s6, a*v[7]+s7
	}
	*acc = [8]float32{s0, s1, s2, s3, s4, s5, s6, s7}
}
