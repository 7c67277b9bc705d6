package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// Products with quantised weights: engine/cpu, quant.go and quantacts.go, say what a
// block of a panel and a record of activations hold.
const (
	panelCols  = 64
	recordSize = 48
	recordD    = 32
	recordMin  = 36
	recordSum  = 40
	recordHalf = 44
)

// quantKind is one layout of blocks.
type quantKind struct {
	name    string
	nibbles bool
	wide    bool // scales are f32, else f16
	mins    bool
	subs    int
}

var quantKinds = []quantKind{
	{"n4h", true, false, false, 1}, {"n4hm", true, false, true, 1}, {"n4w", true, true, false, 1}, {"n4wm", true, true, true, 1},
	{"b8h", false, false, false, 1}, {"b8hm", false, false, true, 1}, {"b8wm", false, true, true, 1}, {"b8w2", false, true, false, 2},
}

// quantTiles leave registers for the integer sums beside those of the chain.
func (t *target) quantTiles() []tile {
	if t.wide() {
		return []tile{{4, 2}, {1, 4}}
	}
	return []tile{{2, 2}, {1, 4}}
}

// quant is the state of one kernel's body.
type quant struct {
	*target
	kind          quantKind
	rows, vectors int

	x, x3, xStride reg.Register
	head, weights  reg.Register
	acc, sums      []reg.VecVirtual // [row][vector]

	mask, table, bias, ones reg.VecVirtual
}

func (t *target) quant(shape tile, kind quantKind) {
	q := &quant{target: t, kind: kind, rows: shape.rows, vectors: shape.vectors}
	t.text(fmt.Sprintf("quant%dx%d%s", q.rows, q.vectors*t.lanes, kind.name),
		"(out *float32, outStride int, x *byte, xStride int, head, weights, table *byte, blockBytes, blocks, first int)",
		fmt.Sprintf("adds %d rows of records by %d columns of a panel to out, or starts it if first is not 0; strides are in bytes. head and weights are those of the first block and column.", q.rows, q.vectors*t.lanes))
	q.x, q.head, q.weights = Load(Param("x"), GP64()), Load(Param("head"), GP64()), Load(Param("weights"), GP64())
	blockBytes, blocks := Load(Param("blockBytes"), GP64()), Load(Param("blocks"), GP64())
	out := Load(Param("out"), GP64())
	q.xStride, q.x3 = t.thirdRow(q.rows, q.x, "xStride")
	outStride, out3 := t.thirdRow(q.rows, out, "outStride")
	q.acc, q.sums = t.vectors(q.rows*q.vectors), t.vectors(q.rows*q.vectors)
	each := func(do func(v reg.VecVirtual, at Mem)) {
		for r := range q.rows {
			for v := range q.vectors {
				do(q.acc[r*q.vectors+v], row(out, out3, outStride, r, v*t.bytes()))
			}
		}
	}
	q.constants()
	first := Load(Param("first"), GP64())
	TESTQ(first, first)
	JZ(LabelRef("goOn"))
	for _, v := range q.acc {
		t.zero(v)
	}
	JMP(LabelRef("block"))
	Label("goOn")
	each(func(v reg.VecVirtual, at Mem) { VMOVUPS(at, v) })
	Label("block")
	q.block()
	ADDQ(blockBytes, q.head)
	ADDQ(blockBytes, q.weights)
	ADDQ(I32(recordSize), q.x)
	if q.rows > 3 {
		ADDQ(I32(recordSize), q.x3)
	}
	DECQ(blocks)
	JNZ(LabelRef("block"))
	each(func(v reg.VecVirtual, at Mem) { VMOVUPS(v, at) })
	VZEROUPPER()
	RET()
}

// constants loads what does not change: the mask of a nibble, the table that nibbles
// are looked up in, and for AVX2 what turns bytes signed and ones to add pairs.
func (q *quant) constants() {
	if q.kind.nibbles {
		q.mask, q.table = q.vector(), q.vector()
		at := Load(Param("table"), GP64())
		if q.target.wide() {
			VBROADCASTI32X4(Mem{Base: at}, q.table)
			VMOVDQU32(q.constant("nibbles"), q.mask)
		} else {
			VBROADCASTI128(Mem{Base: at}, q.table)
			VMOVDQU(q.constant("nibbles"), q.mask)
		}
	}
	if !q.target.wide() {
		q.ones = q.vector()
		VMOVDQU(q.constant("int16 ones"), q.ones)
		if !q.kind.nibbles {
			q.bias = q.vector()
			VMOVDQU(q.constant("byte signs"), q.bias)
		}
	}
}

// block does one block: for each of its sub-blocks the integer sums, then a step of the
// chain; then that of the minima.
func (q *quant) block() {
	quads := 8 / q.kind.subs
	for s := range q.kind.subs {
		q.start(s)
		for j := s * quads; j < (s+1)*quads; j++ {
			q.quad(j)
		}
		q.step(s)
	}
	if q.kind.mins {
		for v := range q.vectors {
			m := q.scale(q.kind.subs, v)
			for r := range q.rows {
				low := q.vector()
				VBROADCASTSS(row(q.x, q.x3, q.xStride, r, recordMin), low)
				VFMADD231PS(m, low, q.acc[r*q.vectors+v])
			}
		}
	}
}

// start sets the sums of sub-block s to zero or, where the weights have 128 added to
// them, to what that adds, negated.
func (q *quant) start(s int) {
	for r := range q.rows {
		sums := q.sums[r*q.vectors : (r+1)*q.vectors]
		q.zero(sums[0])
		if q.target.wide() {
			added := q.vector()
			at := recordSum
			if q.kind.subs == 2 && s == 0 {
				at = recordHalf
			}
			VPBROADCASTD(row(q.x, q.x3, q.xStride, r, at), added)
			if q.kind.subs == 2 && s == 1 {
				half := q.vector()
				VPBROADCASTD(row(q.x, q.x3, q.xStride, r, recordHalf), half)
				VPSUBD(half, added, added)
			}
			VPSLLD(U8(7), added, added)
			VPSUBD(added, sums[0], sums[0])
		}
		for _, v := range sums[1:] {
			if q.target.wide() {
				VMOVDQA32(sums[0], v)
			} else {
				q.zero(v)
			}
		}
	}
}

// quad adds the products of k [4j, 4j+4); with nibbles an even j does the next four as
// well, an odd one nothing.
func (q *quant) quad(j int) {
	if q.kind.nibbles && j%2 == 1 {
		return
	}
	for v := range q.vectors {
		w := q.vector()
		at := Mem{Base: q.weights, Disp: j*panelCols*4 + v*q.bytes()}
		if q.kind.nibbles {
			at.Disp = j/2*panelCols*4 + v*q.bytes()
		}
		q.load(at, w)
		if !q.kind.nibbles {
			if !q.target.wide() {
				VPXOR(q.bias, w, w)
			}
			q.multiply(w, j, v)
			continue
		}
		low := q.vector()
		q.and(q.mask, w, low)
		VPSHUFB(low, q.table, low)
		q.multiply(low, j, v)
		VPSRLW(U8(4), w, w)
		q.and(q.mask, w, w)
		VPSHUFB(w, q.table, w)
		q.multiply(w, j+1, v)
	}
}

func (q *quant) load(at Mem, dst reg.VecVirtual) {
	if q.target.wide() {
		VMOVDQU32(at, dst)
	} else {
		VMOVDQU(at, dst)
	}
}

// multiply adds the products of weights w of vector v by the activations of quad j. With
// AVX2, whose instruction adds pairs in 16 bits, the sign of a weight goes to the
// activation: 2·128·127 fits.
func (q *quant) multiply(w reg.VecVirtual, j, v int) {
	var size reg.VecVirtual
	if !q.target.wide() {
		size = q.vector()
		VPABSB(w, size)
	}
	for r := range q.rows {
		at, sum := row(q.x, q.x3, q.xStride, r, 4*j), q.sums[r*q.vectors+v]
		if q.target.wide() {
			VPDPBUSD_BCST(at, w, sum)
			continue
		}
		a := q.vector()
		VPBROADCASTD(at, a)
		VPSIGNB(w, a, a)
		VPMADDUBSW(a, size, a)
		VPMADDWD(q.ones, a, a)
		VPADDD(a, sum, sum)
	}
}

// scale loads scales or minima number i of vector v.
func (q *quant) scale(i, v int) reg.VecVirtual {
	dst := q.vector()
	if q.kind.wide {
		VMOVUPS(Mem{Base: q.head, Disp: 4 * (i*panelCols + v*q.lanes)}, dst)
	} else {
		VCVTPH2PS(Mem{Base: q.head, Disp: 2 * (i*panelCols + v*q.lanes)}, dst)
	}
	return dst
}

// step adds the sums of sub-block s, scaled, to the chain.
func (q *quant) step(s int) {
	for v := range q.vectors {
		scale := q.scale(s, v)
		for r := range q.rows {
			sum, d := q.sums[r*q.vectors+v], q.vector()
			VBROADCASTSS(row(q.x, q.x3, q.xStride, r, recordD), d)
			VMULPS(scale, d, d)
			VCVTDQ2PS(sum, sum)
			VFMADD231PS(d, sum, q.acc[r*q.vectors+v])
		}
	}
}
