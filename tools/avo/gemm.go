package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// A weight panel is [k][64]. In f32 a row is 64 columns in order. In bf16 it is 32 words of 32 bits;
// word 16g+i has column 32g+i in its lower half and column 32g+16+i in its upper half, so that a shift
// and a mask widen a vector of words to two vectors of f32. In f16 a row is 64 columns in order, which
// one instruction widens.
const (
	floatRow = 64 * 4
	halfRow  = 64 * 2
)

type tile struct{ rows, vectors int }

// tiles returns the shapes of tiles, one for each number of rows. The largest fills the registers: 6x4
// accumulators of 32, or 6x2 of 16, in addition to the weights and one broadcast activation. Fewer than
// eight accumulators wait for one another, so tiles of few rows are wider.
func (t *target) tiles() []tile {
	if t.wide() {
		return []tile{{6, 4}, {5, 4}, {4, 4}, {3, 4}, {2, 4}, {1, 4}}
	}
	return []tile{{6, 2}, {5, 2}, {4, 2}, {3, 4}, {2, 4}, {1, 8}}
}

// pair returns the first columns of vectors 2q and 2q+1 of a tile.
func (t *target) pair(q int) (lower, upper int) {
	lower = 32 * q
	if !t.wide() {
		lower = q/2*32 + q%2*8
	}
	return lower, lower + 16
}

// gemm generates the product of a tile: rows rows of activations by a panel's columns, in as many
// vectors as vectors says, added to out. Each element is one chain of fused multiply-adds over
// ascending k. It starts at zero if first is set, else at out's value. kind is the type of the
// weights.
func (t *target) gemm(rows, vectors int, kind string) {
	pointer, step := "*uint32", halfRow
	if kind == "f32" {
		pointer, step = "*float32", floatRow
	}
	t.text(fmt.Sprintf("gemm%dx%d%s", rows, vectors*t.lanes, kind),
		"(out *float32, outStride int, a *float32, aStride int, w "+pointer+", k, first, fetch, fetchStep int)",
		fmt.Sprintf("adds %d rows of a by %d columns of a panel to out, or starts it if first is not 0; strides are in bytes. For each 64 bytes of a row of weights it fetches fetchStep bytes, from w+fetch on.", rows, vectors*t.lanes))
	a, w, k := Load(Param("a"), GP64()), Load(Param("w"), GP64()), Load(Param("k"), GP64())
	out := Load(Param("out"), GP64())
	fetch := t.fetches(rows, w)
	aStride, a3 := t.thirdRow(rows, a, "aStride")
	outStride, out3 := t.thirdRow(rows, out, "outStride")

	acc := t.vectors(rows * vectors)
	each := func(do func(v reg.VecVirtual, at Mem)) {
		for r := range rows {
			for v := range vectors {
				col, upper := t.pair(v / 2)
				if v%2 == 1 {
					col = upper
				}
				do(acc[r*vectors+v], row(out, out3, outStride, r, 4*col))
			}
		}
	}
	mask := t.upperMask(kind)
	t.start(acc, "step", func() { each(func(v reg.VecVirtual, at Mem) { VMOVUPS(at, v) }) })
	loop("step", k, 1, func() {
		if rows == 1 { // each vector of weights is used once, and its register is free again
			x := t.vector()
			VBROADCASTSS(Mem{Base: a}, x)
			for q := range vectors / 2 {
				lower, upper := t.weights(q, w, kind, mask)
				VFMADD231PS(lower, x, acc[2*q])
				VFMADD231PS(upper, x, acc[2*q+1])
			}
			fetch(step)
			ADDQ(I32(step), w)
			ADDQ(I32(4), a)
			return
		}
		together := vectors // whose weights are in registers at the same time
		if !t.wide() && rows*vectors+vectors+1 > 16 {
			together = 2
		}
		for first := 0; first < vectors; first += together {
			weights := make([]Op, 0, together)
			for q := first / 2; q < (first+together)/2; q++ {
				lower, upper := t.weights(q, w, kind, mask)
				if kind == "f32" {
					lower, upper = t.loaded(lower), t.loaded(upper)
				}
				weights = append(weights, lower, upper)
			}
			if first == 0 {
				fetch(step)
			}
			for r := range rows {
				x := t.vector()
				VBROADCASTSS(row(a, a3, aStride, r, 0), x)
				for v, weight := range weights {
					VFMADD231PS(weight, x, acc[r*vectors+first+v])
				}
			}
		}
		ADDQ(I32(step), w)
		ADDQ(I32(4), a)
		if rows > 3 {
			ADDQ(I32(4), a3)
		}
	})
	each(func(v reg.VecVirtual, at Mem) { VMOVUPS(v, at) })
	end()
}

// fetches returns a function that generates the prefetches of weights for one step of k. They are
// needed because the processor's prefetcher stops at the end of each page of 4 KiB. The caller spreads
// the prefetches of the next block over all tiles of the current one: a single tile would request more
// than memory delivers in its time, and stall.
func (t *target) fetches(rows int, w reg.Register) func(step int) {
	from, by := Load(Param("fetch"), GP64()), Load(Param("fetchStep"), GP64())
	ADDQ(w, from)
	return func(step int) {
		for range step / 64 {
			if rows == 1 { // the weights are needed soon
				PREFETCHT0(Mem{Base: from})
			} else {
				PREFETCHT1(Mem{Base: from})
			}
			ADDQ(by, from)
		}
	}
}

// thirdRow loads the stride in parameter param and, for more than three rows, a pointer to the row
// three below base. For one row it returns nil, nil.
func (t *target) thirdRow(rows int, base reg.Register, param string) (stride, third reg.Register) {
	if rows == 1 {
		return nil, nil
	}
	stride = Load(Param(param), GP64())
	if rows <= 3 {
		return stride, nil
	}
	at := GP64()
	LEAQ(Mem{Base: base, Index: stride, Scale: 2}, at)
	ADDQ(stride, at)
	return stride, at
}

// upperMask loads the mask of the upper half of a word, which weights needs for bf16. For other kinds it
// returns nil.
func (t *target) upperMask(kind string) reg.VecVirtual {
	if kind != "bf16" {
		return nil
	}
	mask := t.vector()
	VMOVUPS(t.constant("upper"), mask)
	return mask
}

// weights generates the widening of vectors 2q and 2q+1 of one row of weights, the columns of one k, and
// returns them. Those of f32 are returned as memory.
func (t *target) weights(q int, w reg.Register, kind string, mask reg.VecVirtual) (lower, upper Op) {
	first, second := t.pair(q)
	switch kind {
	case "f32":
		return Mem{Base: w, Disp: 4 * first}, Mem{Base: w, Disp: 4 * second}
	case "f16":
		low, high := t.vector(), t.vector()
		VCVTPH2PS(Mem{Base: w, Disp: 2 * first}, low)
		VCVTPH2PS(Mem{Base: w, Disp: 2 * second}, high)
		return low, high
	}
	words, low := t.vector(), t.vector()
	VMOVUPS(Mem{Base: w, Disp: q * t.bytes()}, words)
	VPSLLD(U8(16), words, low)
	t.and(mask, words, words)
	return low, words
}

// loaded generates the load of a vector and returns its register.
func (t *target) loaded(from Op) reg.VecVirtual {
	v := t.vector()
	VMOVUPS(from, v)
	return v
}
