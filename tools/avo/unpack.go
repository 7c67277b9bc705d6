package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// The unpacking of quantised weights to bytes.

// pair generates the unpacking of the group's quads j and j+1, j even, to q.w.
func (q *quant) pair(j int) {
	q.w[j], q.w[j+1] = q.target.vectors(q.vectors), q.target.vectors(q.vectors)
	for v := range q.vectors {
		low, high := q.w[j][v], q.w[j+1][v]
		if q.kind.weights == asBytes {
			VMOVUPS(q.quad(j, v), low)
			VMOVUPS(q.quad(j+1, v), high)
		} else {
			mask := q.constant("nibbles")
			VMOVUPS(q.quad(j/2, v), high)
			q.and(mask, high, low)
			VPSRLW(U8(4), high, high)
			q.and(mask, high, high)
		}
		for i, w := range []reg.VecVirtual{low, high} {
			q.complete(w, j+i, v)
		}
	}
}

// quad returns the address of vector v of the group in the i-th 256 bytes of a block's weights.
func (q *quant) quad(i, v int) Mem {
	return Mem{Base: q.weights, Disp: i*4*panelCols + v*q.bytes()}
}

// complete generates what turns w, a byte or a nibble of each weight of quad j, into the weights as they
// are multiplied.
func (q *quant) complete(w reg.VecVirtual, j, v int) {
	if q.kind.weights == byTable {
		VPSHUFB(w, q.table, w)
	}
	if q.kind.high > 0 {
		q.addHigh(w, j, v)
	}
	if !q.signed() {
		return
	}
	if q.kind.weights == asBytes { // they are stored with an offset of 128
		VPXOR(q.constant("byte signs"), w, w)
	}
	VMOVUPS(w, q.signs.Offset(j*q.bytes()))
	VPABSB(w, w)
}

// loadTable generates the load of the values of nibbles to all lanes of 16 bytes.
func (q *quant) loadTable() {
	at := Load(Param("more"), GP64())
	q.table = q.vector()
	if q.target.wide() {
		VBROADCASTI32X4(Mem{Base: at}, q.table)
	} else {
		VBROADCASTI128(Mem{Base: at}, q.table)
	}
}

// addHigh adds the bits above the nibbles w of quad j. A plane of them has the bits of 8 or, two bits
// each, of 4 quads in every byte, ascending.
func (q *quant) addHigh(w reg.VecVirtual, j, v int) {
	perByte, mask := 8/q.kind.high, q.constant(fmt.Sprintf("%d high", q.kind.high))
	plane, moved := q.plane(j/perByte, v), q.vector()
	switch left := 4 - j%perByte*q.kind.high; {
	case left > 0:
		VPSLLW(U8(left), plane, moved)
	case left < 0:
		VPSRLW(U8(-left), plane, moved)
	default:
		moved = plane
	}
	if q.target.wide() {
		const orAnd = 0xf8 // a | b&c
		VPTERNLOGD(U8(orAnd), mask, moved, w)
		return
	}
	bits := q.vector()
	VPAND(mask, moved, bits)
	VPOR(bits, w, w)
}

// plane returns a register with vector v of plane i of a block's high bits. With AVX-512 there are
// enough registers to load each plane once.
func (q *quant) plane(i, v int) reg.VecVirtual {
	if p, ok := q.planes[[2]int{i, v}]; ok {
		return p
	}
	p := q.vector()
	VMOVUPS(q.quad(4+i, v), p)
	if q.target.wide() {
		q.planes[[2]int{i, v}] = p
	}
	return p
}
