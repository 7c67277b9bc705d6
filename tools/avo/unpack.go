package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// Loads of quantised weights: their unpacking to bytes, and the prefetches of what comes next.

// pair generates the unpacking of quads j and j+1, j even, of n vectors from v on. It calls use after
// each, with the registers of the weights and the number of the quad.
func (q *quant) pair(j, v, n int, use func(w []reg.VecVirtual, j int)) {
	raw := make([]reg.VecVirtual, n)
	if q.kind.weights == asBytes {
		for i := range 2 {
			for n := range raw {
				raw[n] = q.load(j+i, v+n)
				if q.signed() {
					VPXOR(q.bias, raw[n], raw[n])
				}
			}
			use(raw, j+i)
		}
		return
	}
	low := q.target.vectors(n)
	for i, w := range low {
		raw[i] = q.load(j/2, v+i)
		q.and(q.mask, raw[i], w)
		q.lookUp(w)
		q.addHigh(w, j, v+i)
	}
	use(low, j)
	for i, w := range raw {
		VPSRLW(U8(4), w, w)
		q.and(q.mask, w, w)
		q.lookUp(w)
		q.addHigh(w, j+1, v+i)
	}
	use(raw, j+1)
}

// load generates the load of vector v of the i-th 256 bytes of a block's weights, and returns its
// register.
func (q *quant) load(i, v int) reg.VecVirtual {
	w, at := q.vector(), Mem{Base: q.weights, Disp: i*panelCols*4 + v*q.bytes()}
	VMOVUPS(at, w)
	if !q.kind.expanded() {
		q.fetchNext(at, v*q.bytes())
	}
	return w
}

// fetchNext generates the prefetch of what is at the given address in the next part of the panel, for tiles
// of several rows. They read a panel in columns of a cache line, so the processor's own prefetcher sees
// no sequence. offset is the address's distance from the tile's first column.
func (q *quant) fetchNext(at Mem, offset int) {
	if q.ahead == nil || offset%cacheLine != 0 {
		return
	}
	at.Index, at.Scale = q.ahead, 1
	if q.kind.weights == asBytes { // two parts are too large for the first-level cache
		PREFETCHT1(at)
	} else {
		PREFETCHT0(at)
	}
}

// cacheLine is the size of a cache line in bytes.
const cacheLine = 64

// fetch generates what is due of a single row's prefetches, once quads j and j+1 of vector v are done.
// They go through the block in the order of addresses, whatever the order of use: the processor's own
// prefetcher follows only such a sequence, and stops at the end of each page of 4 KiB.
func (q *quant) fetch(j, v int) {
	if q.rows != 1 {
		return
	}
	lines, turns := q.weightBytes()/cacheLine, 4*q.vectors
	for turn := j/2*q.vectors + v + 1; q.fetched*turns < turn*lines; q.fetched++ {
		PREFETCHT0(Mem{Base: q.weights, Disp: aheadWeights + cacheLine*q.fetched})
	}
}

// weightBytes returns the size of a block's weights in a panel.
func (q *quant) weightBytes() int {
	if q.kind.weights == asBytes {
		return 8 * 4 * panelCols
	}
	return (4 + q.kind.high) * 4 * panelCols
}

// addHigh adds the bits above the nibbles w of quad j. A plane of them has the bits of 8 or, two bits
// each, of 4 quads in every byte, ascending.
func (q *quant) addHigh(w reg.VecVirtual, j, v int) {
	if q.kind.high == 0 {
		return
	}
	perByte := 8 / q.kind.high
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
		VPTERNLOGD(U8(orAnd), q.highMask, moved, w)
		return
	}
	bits := q.vector()
	VPAND(q.highMask, moved, bits)
	VPOR(bits, w, w)
}

// plane returns a register with vector v of plane i of a block's high bits. With AVX-512 there are
// enough registers to load each plane once per block.
func (q *quant) plane(i, v int) reg.VecVirtual {
	if p, ok := q.planes[[2]int{i, v}]; ok {
		return p
	}
	p := q.load(4+i, v)
	if q.target.wide() {
		q.planes[[2]int{i, v}] = p
	}
	return p
}

// expand generates the unpacking of weights with high bits to bytes, for tiles of several rows.
func (t *target) expand(high int) {
	q := &quant{target: t, kind: quantKind{weights: asNibbles, high: high}, vectors: 4 * panelCols / t.bytes()}
	t.text(fmt.Sprintf("expand%d", 4+high), "(dst, src *byte, step, blocks int)",
		fmt.Sprintf("writes the weights of blocks that are step bytes apart, %d bits each, as bytes [blocks][8][64][4]. It fetches as many bytes after them.", 4+high))
	dst, next := Load(Param("dst"), GP64()), GP64()
	q.weights = Load(Param("src"), GP64())
	blocks := Load(Param("blocks"), GP64())
	MOVQ(blocks, next)
	IMULQ(t.param("step"), next)
	q.masks()
	loop("block", blocks, 1, func() {
		for line := range 4 + high {
			for i := range 4 {
				PREFETCHT1(Mem{Base: q.weights, Index: next, Scale: 1, Disp: 64 * (4*line + i)})
			}
		}
		for v := range q.vectors {
			for j := 0; j < 8; j += 2 {
				q.pair(j, v, 1, func(w []reg.VecVirtual, j int) {
					VMOVUPS(w[0], Mem{Base: dst, Disp: j*panelCols*4 + v*q.bytes()})
				})
			}
		}
		ADDQ(t.param("step"), q.weights)
		ADDQ(I32(8*panelCols*4), dst)
	})
	end()
}

func (q *quant) lookUp(w reg.VecVirtual) {
	if q.kind.weights == byTable {
		VPSHUFB(w, q.table, w)
	}
}
