package ptxvm

import (
	"encoding/binary"
	"math"
	"math/bits"
)

// whole panics with a fault unless mask, the lanes that run the instruction, is all lanes of
// members that have a thread.
func (w *warp) whole(mask uint32, members uint64) {
	if uint32(members)&w.all != mask {
		fail(Divergence, bits.TrailingZeros32(mask), "lanes %#x run it for lanes %#x", mask, uint32(members))
	}
}

func runShuffle(w *warp, in *instr, mask uint32) {
	w.whole(mask, w.r[in.c][bits.TrailingZeros32(mask)])
	from := w.r[in.a]
	for m := mask; m != 0; m &= m - 1 {
		l := bits.TrailingZeros32(m)
		other := l ^ int(w.r[in.b][l]&31)
		if mask>>other&1 == 0 {
			fail(Divergence, l, "the value of lane %d, which has ended", other)
		}
		w.r[in.d][l] = from[other]
	}
}

func runBallot(w *warp, in *instr, mask uint32) {
	w.whole(mask, w.r[in.c][bits.TrailingZeros32(mask)])
	v := uint64(w.p[in.a] & mask)
	for m := mask; m != 0; m &= m - 1 {
		w.r[in.d][bits.TrailingZeros32(m)] = v
	}
}

func runLoadMatrix(w *warp, in *instr, mask uint32) { w.loadMatrix(in, mask, false) }

func runLoadTransposed(w *warp, in *instr, mask uint32) { w.loadMatrix(in, mask, true) }

// loadMatrix reads two 8x8 matrices of 16-bit elements: lane l < 16 has the
// address of row l%8 of matrix l/8; lane l gets elements 2(l%4) and 2(l%4)+1 of
// row l/4 or, transposed, of column l/4.
func (w *warp) loadMatrix(in *instr, mask uint32, transposed bool) {
	if mask != full {
		fail(Divergence, bits.TrailingZeros32(mask), "ldmatrix by lanes %#x", mask)
	}
	var rows [16]uint32
	for i := range rows {
		rows[i] = uint32(int64(w.r[in.a][i]) + in.imm)
		w.b.shared.place(rows[i], 16, i)
	}
	s := &w.b.shared
	element := func(matrix, row, col, lane int) uint64 {
		return uint64(binary.LittleEndian.Uint16(s.read(w, rows[8*matrix+row]+uint32(2*col), 2, lane)))
	}
	for i, r := range in.more {
		for l := range lanes {
			a, b := l/4, l%4*2
			if transposed {
				w.r[r][l] = element(i, b, a, l) | element(i, b+1, a, l)<<16
			} else { // the two elements are one word
				w.r[r][l] = uint64(binary.LittleEndian.Uint32(s.read(w, rows[8*i+a]+uint32(2*b), 4, l)))
			}
		}
	}
}

func widen(b uint64) float64 { return float64(math.Float32frombits(uint32(b) << 16)) }

// runMMA computes D = A·B + C, 16x8 sums of 16 products, in the layout of common.cuh.
// A sum is computed in f64 and truncated to f32. Tensor cores also truncate: they align
// the products to the largest and drop lower bits. So a chain of fused multiply-adds
// equals neither their bits nor these. An output depends only on its row of A and its
// column of B.
func runMMA(w *warp, in *instr, mask uint32) {
	if mask != full {
		fail(Divergence, bits.TrailingZeros32(mask), "mma by lanes %#x", mask)
	}
	var a [16][16]float64
	var b [8][16]float64
	var some [16]uint64 // by row of A: not zero if an element is not
	finite := true      // all of B
	for l := range lanes {
		g, k := l/4, l%4*2
		for i := range 4 {
			row, at, v := g+i%2*8, k+i/2*8, w.r[in.more[4+i]][l]
			a[row][at], a[row][at+1] = widen(v&0xffff), widen(v>>16)
			some[row] |= v & 0x7fff7fff
		}
		for i := range 2 {
			v := w.r[in.more[8+i]][l]
			b[g][k+8*i], b[g][k+8*i+1] = widen(v&0xffff), widen(v>>16)
			finite = finite && v&0x7f80 != 0x7f80 && v&0x7f800000 != 0x7f800000
		}
	}
	for l := range lanes {
		var sum [4]uint64 // C's registers may be those of D, in another order
		for i := range sum {
			row, col, c := l/4+i/2*8, l%4*2+i%2, f(w.r[in.more[10+i]][l])
			if finite && some[row] == 0 { // rows past the last one are zero: in a step of one token, 15 of 16
				sum[i] = bits32(c + 0)
			} else {
				sum[i] = mmaSum(&a[row], &b[col], c)
			}
		}
		for i := range sum {
			w.r[in.more[i]][l] = sum[i]
		}
	}
}

// mmaSum returns the sum of 16 products and c, rounded towards zero.
func mmaSum(a, b *[16]float64, c float32) uint64 {
	var even, odd float64
	for k := 0; k < 16; k += 2 {
		even += float64(a[k] * b[k])
		odd += float64(a[k+1] * b[k+1])
	}
	sum := even + odd + float64(c)
	r := float32(sum)
	if math.Abs(float64(r)) > math.Abs(sum) {
		return uint64(math.Float32bits(r) - 1)
	}
	return bits32(r)
}
