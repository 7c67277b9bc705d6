package main

import (
	"fmt"
	"math/bits"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// Products with quantised weights. The files quant.go and quantgemm.go of engine/cpu describe the
// blocks of panels and the records of activations.
const (
	panelCols  = 64
	recordSize = 48
	recordD    = 32
	recordMin  = 36
	recordSum  = 40
	recordHalf = 44
)

// aheadWeights is how many bytes ahead a single row prefetches its weights: 4 to 7 blocks.
const aheadWeights = 8192

// partBlocks is the number of blocks that a tile of several rows computes in one call, a power of two:
// quantBlocks of engine/cpu.
const partBlocks = 8

// quantKind is one layout of blocks.
type quantKind struct {
	name    string
	weights packing
	high    int // bits of a weight above its nibble
	added   int // offset of a stored weight
	scales  scaling
	mins    bool
	subs    int
	most    int // largest magnitude of a weight as AVX2 multiplies it
}

// expanded reports whether the weights are those that expand writes, which are in the first-level cache.
func (k *quantKind) expanded() bool { return k.weights == asBytes && k.most < 128 }

// packing is the storage of weights: bytes, nibbles that are integers themselves or their lower bits,
// or nibbles that are indices into a table.
type packing int

const (
	asBytes packing = iota
	asNibbles
	byTable
)

// scaling is the storage of scales and minima: f16, f32, or bytes that multiply an f16 shared by 8
// blocks.
type scaling int

const (
	halves scaling = iota
	floats
	factors
)

// superBlocks is the number of blocks that share an f16 if scales are factors.
const superBlocks = 8

var quantKinds = []quantKind{
	{"n4h", asNibbles, 0, 8, halves, false, 1, 15}, {"n4hm", asNibbles, 0, 0, halves, true, 1, 15}, {"n4km", asNibbles, 0, 0, factors, true, 1, 15},
	{"t4h", byTable, 0, 0, halves, false, 1, 127}, {"t4w", byTable, 0, 0, floats, false, 1, 12},
	{"b8h", asBytes, 0, 128, halves, false, 1, 128},
	{"b5h", asBytes, 0, 16, halves, false, 1, 31}, {"b5hm", asBytes, 0, 0, halves, true, 1, 31}, {"b5km", asBytes, 0, 0, factors, true, 1, 31}, {"b6k2", asBytes, 0, 32, factors, false, 2, 63},
	{"n5h", asNibbles, 1, 16, halves, false, 1, 31}, {"n5hm", asNibbles, 1, 0, halves, true, 1, 31}, {"n5km", asNibbles, 1, 0, factors, true, 1, 31}, {"n6k2", asNibbles, 2, 32, factors, false, 2, 63},
}

// quantTiles returns the shapes of tiles, most rows first. With 32 registers, accumulators of the chain
// fit beside the integer sums. With 16, tiles of eight vectors keep the accumulators in memory: a block
// loads and stores each of them once and adds to the integer sums eight times. A single row takes all
// columns of a panel at once, because it reads the weights from memory, in their order.
func (t *target) quantTiles() []tile {
	if t.wide() {
		return []tile{{4, 2}, {1, 4}}
	}
	return []tile{{4, 2}, {2, 2}, {1, 8}}
}

// quant is the state of one kernel's body.
type quant struct {
	*target
	kind          quantKind
	rows, vectors int

	x, x3, xStride     reg.Register
	out, out3, oStride reg.Register
	head, weights      reg.Register
	ahead              reg.Register     // bytes from a block to that of the next part of the panel; nil for a single row
	super, left        reg.Register     // pointer to the f16 of factors, and how many blocks still share them
	acc                []reg.VecVirtual // [row][vector] of the chain; nil if they are in memory, at out
	sums               []reg.VecVirtual // [row][vector] of integers
	halfway            Mem              // room for sums, if they are widened several times in a sub-block
	mask, table        reg.VecVirtual
	bias, ones         Op // of AVX2

	fetched  int // cache lines of the block that a single row has prefetched
	highMask reg.VecVirtual
	planes   map[[2]int]reg.VecVirtual // high bits in registers, by plane and vector
}

func (t *target) quant(shape tile, kind quantKind) {
	q := &quant{target: t, kind: kind, rows: shape.rows, vectors: shape.vectors}
	t.text(fmt.Sprintf("quant%dx%d%s", q.rows, q.vectors*t.lanes, kind.name),
		"(out *float32, outStride int, x *byte, xStride int, head, weights, more *byte, headStep, weightStep, blocks, first int)",
		fmt.Sprintf("adds %d rows of records by %d columns of a panel to out, or starts it if first is not 0; strides are in bytes. head and weights are those of the first block and column; more is the table of nibbles, or what 8 blocks multiply their scales by.", q.rows, q.vectors*t.lanes))
	q.x, q.head, q.weights = Load(Param("x"), GP64()), Load(Param("head"), GP64()), Load(Param("weights"), GP64())
	blocks := Load(Param("blocks"), GP64())
	q.out = Load(Param("out"), GP64())
	q.xStride, q.x3 = t.thirdRow(q.rows, q.x, "xStride")
	q.oStride, q.out3 = t.thirdRow(q.rows, q.out, "outStride")
	if q.rows > 1 {
		q.ahead = Load(Param("headStep"), GP64())
		SHLQ(U8(bits.Len(partBlocks)-1), q.ahead)
	}
	q.sums = t.vectors(q.rows * q.vectors)
	if !t.vnni && q.period() < 8/kind.subs && q.period() > 1 {
		q.halfway = AllocLocal(len(q.sums) * t.bytes())
	}
	q.constants()
	if t.wide() || len(q.sums) < 8 {
		q.acc = t.vectors(q.rows * q.vectors)
		t.start(q.acc, "block", func() { q.each(func(i int, at Mem) { VMOVUPS(at, q.acc[i]) }) })
	} else {
		first, zero := Load(Param("first"), GP64()), t.vector()
		TESTQ(first, first)
		JZ(LabelRef("block"))
		t.zero(zero)
		q.each(func(_ int, at Mem) { VMOVUPS(zero, at) })
	}
	loop("block", blocks, 1, func() {
		q.block()
		ADDQ(t.param("headStep"), q.head)
		ADDQ(t.param("weightStep"), q.weights)
		if kind.scales == factors {
			DECQ(q.left)
			JNZ(LabelRef("sameSuper"))
			ADDQ(I32(q.superBytes()), q.super)
			MOVQ(I32(superBlocks), q.left)
			Label("sameSuper")
		}
		ADDQ(I32(recordSize), q.x)
		if q.rows > 3 {
			ADDQ(I32(recordSize), q.x3)
		}
	})
	if q.acc != nil {
		q.each(func(i int, at Mem) { VMOVUPS(q.acc[i], at) })
	}
	end()
}

// each calls do with the index and the address in out of each vector of the tile.
func (q *quant) each(do func(i int, at Mem)) {
	for r := range q.rows {
		for v := range q.vectors {
			do(r*q.vectors+v, q.result(r, v))
		}
	}
}

// result returns the address in out of vector v of row r.
func (q *quant) result(r, v int) Mem { return row(q.out, q.out3, q.oStride, r, v*q.bytes()) }

// superBytes returns the size of the f16 of 8 blocks: those of scales and, if there are any, of minima.
func (q *quant) superBytes() int {
	if q.kind.mins {
		return 2 * 2 * panelCols
	}
	return 2 * panelCols
}

// constants generates the loads of constants: the mask of a nibble, the table of nibbles, and for AVX2
// the offset that makes bytes signed, and ones to add pairs.
func (q *quant) constants() {
	if q.kind.scales == factors {
		q.super, q.left = Load(Param("more"), GP64()), GP64()
		MOVQ(I32(superBlocks), q.left)
	}
	q.masks()
	if q.kind.weights == byTable {
		q.table = q.vector()
		at := Load(Param("more"), GP64())
		if q.target.wide() {
			VBROADCASTI32X4(Mem{Base: at}, q.table)
		} else {
			VBROADCASTI128(Mem{Base: at}, q.table)
		}
	}
	if !q.vnni {
		q.ones, q.bias = q.constant("int16 ones"), q.constant("byte signs")
		if q.rows < 4 && q.kind.high == 0 { // there are registers left
			q.ones = q.loaded(q.ones)
			if q.signed() && q.kind.weights == asBytes {
				q.bias = q.loaded(q.bias)
			}
		}
	}
}

// masks generates the loads of the masks of a nibble and of the bits above it.
func (q *quant) masks() {
	if q.kind.weights == asBytes {
		return
	}
	q.mask = q.vector()
	VMOVUPS(q.constant("nibbles"), q.mask)
	if q.kind.high > 0 {
		q.highMask, q.planes = q.vector(), map[[2]int]reg.VecVirtual{}
		VMOVUPS(q.constant(fmt.Sprintf("%d high", q.kind.high)), q.highMask)
	}
}

// signed reports whether weights are multiplied as signed bytes.
func (q *quant) signed() bool {
	return !q.vnni && (q.kind.weights == byTable || q.kind.added == 128)
}

// added returns the base-2 logarithm of the offset that weights have when they are multiplied, or -1
// for none.
func (q *quant) added() int {
	switch {
	case q.signed():
		return -1
	case q.kind.weights == byTable:
		return 7
	}
	return bits.Len(uint(q.kind.added)) - 1
}

// period returns the number of quads whose products AVX2 adds up in 16 bits: one instruction
// multiplies and adds two pairs, each sum at most 2·most·127.
func (q *quant) period() int { return min((1<<15-1)/(2*q.kind.most*127), 8/q.kind.subs) }

// block generates one block: for each sub-block the integer sums and a step of the chain, the last one
// with the step of the minima.
func (q *quant) block() {
	q.fetched = 0
	quads := 8 / q.kind.subs
	for s := range q.kind.subs {
		if q.vnni {
			q.start(s)
		}
		group := q.vectors                                          // whose weights are unpacked together, to load activations once for all
		if q.rows == 1 || q.signed() && q.kind.weights == byTable { // too few registers
			group = 1
		}
		for j := s * quads; j < (s+1)*quads; j += 2 {
			for v := 0; v < q.vectors; v += group {
				q.pair(j, v, group, func(w []reg.VecVirtual, j int) { q.multiply(w, j, v) })
				q.fetch(j, v)
			}
		}
		if !q.vnni {
			q.correct(s)
		}
		q.step(s)
	}
}

// offset loads -offset·Σ q of sub-block s of row r, with the sign that negative gives, or returns nil
// if weights have no offset.
func (q *quant) offset(s, r int) reg.VecVirtual {
	shift := q.added()
	if shift < 0 {
		return nil
	}
	added, at := q.vector(), recordSum
	if q.kind.subs == 2 && s == 0 {
		at = recordHalf
	}
	VPBROADCASTD(row(q.x, q.x3, q.xStride, r, at), added)
	if q.kind.subs == 2 && s == 1 {
		half := q.vector()
		VPBROADCASTD(row(q.x, q.x3, q.xStride, r, recordHalf), half)
		VPSUBD(half, added, added)
	}
	VPSLLD(U8(shift), added, added)
	return added
}

// start sets the sums of sub-block s to zero. If the weights are stored with an offset, it sets
// them instead to -offset·Σ q, which cancels what the offset adds to the products.
func (q *quant) start(s int) {
	for r := range q.rows {
		sums := q.sums[r*q.vectors : (r+1)*q.vectors]
		for _, v := range sums {
			q.zero(v)
		}
		if added := q.offset(s, r); added != nil {
			for _, v := range sums {
				VPSUBD(added, v, v)
			}
		}
	}
}

// correct subtracts offset·Σ q from the sums of sub-block s, if the weights are stored with an offset.
func (q *quant) correct(s int) {
	for r := range q.rows {
		if added := q.offset(s, r); added != nil {
			for _, v := range q.sums[r*q.vectors : (r+1)*q.vectors] {
				VPSUBD(added, v, v)
			}
		}
	}
}

// multiply adds the products of weights w, of vectors v and up, and the activations of quad j.
func (q *quant) multiply(w []reg.VecVirtual, j, v int) {
	size := w
	if q.signed() {
		size = q.target.vectors(len(w))
		for i := range w {
			VPABSB(w[i], size[i])
		}
	}
	for r := range q.rows {
		at := row(q.x, q.x3, q.xStride, r, 4*j)
		if q.target.wide() {
			for i := range w {
				VPDPBUSD_BCST(at, w[i], q.sums[r*q.vectors+v+i])
			}
			continue
		}
		a := q.vector()
		VPBROADCASTD(at, a)
		for i := range w {
			sum := q.sums[r*q.vectors+v+i]
			if q.vnni {
				VPDPBUSD(a, w[i], sum)
				continue
			}
			signed := a
			if q.signed() {
				signed = q.vector()
				VPSIGNB(w[i], a, signed)
			}
			q.addPairs(signed, size[i], r*q.vectors+v+i, j)
		}
	}
}

// addPairs adds the products of bytes to sum i by the instructions of AVX2. One adds pairs of products
// in 16 bits and needs one unsigned factor, so the sign of a signed weight has been moved to the
// activation. The sums of a period of quads fit into 16 bits. They are then widened to 32 bits.
func (q *quant) addPairs(a, size reg.VecVirtual, i, j int) {
	quads, period, sum := 8/q.kind.subs, q.period(), q.sums[i]
	at := j % quads
	products := sum
	if at%period > 0 || period == 1 && at > 0 {
		products = q.vector()
	}
	VPMADDUBSW(a, size, products)
	switch {
	case period == 1:
		VPMADDWD(q.ones, products, products)
		if at > 0 {
			VPADDD(products, sum, sum)
		}
		return
	case at%period > 0:
		VPADDW(products, sum, sum)
	}
	if at%period < period-1 {
		return
	}
	VPMADDWD(q.ones, sum, sum)
	if period == quads {
		return
	}
	room := q.halfway.Offset(i * q.bytes())
	if at >= period {
		VPADDD(room, sum, sum)
	}
	if at < quads-1 {
		VMOVDQU(sum, room)
	}
}

// scale generates the load of scale i of vector v, or for i = subs of its minima, and returns the
// register.
func (q *quant) scale(i, v int) reg.VecVirtual {
	dst, size := q.vector(), []int{halves: 2, floats: 4, factors: 1}[q.kind.scales]
	at := Mem{Base: q.head, Disp: size * (i*panelCols + v*q.lanes)}
	if q.rows == 1 && v*q.lanes*size%cacheLine == 0 {
		PREFETCHT0(at.Offset(aheadWeights))
	}
	q.fetchNext(at, v*q.lanes*size)
	switch q.kind.scales {
	case floats:
		VMOVUPS(at, dst)
	case halves:
		VCVTPH2PS(at, dst)
	case factors:
		d, super := q.vector(), Mem{Base: q.super, Disp: 2 * v * q.lanes}
		if i == q.kind.subs {
			super.Disp += 2 * panelCols
		}
		if q.kind.mins {
			VPMOVZXBD(at, dst)
		} else {
			VPMOVSXBD(at, dst)
		}
		VCVTDQ2PS(dst, dst)
		VCVTPH2PS(super, d)
		VMULPS(d, dst, dst)
	}
	return dst
}

// step generates a step of the chain: it adds the scaled sums of sub-block s and, after the last one,
// the minima.
func (q *quant) step(s int) {
	for v := range q.vectors {
		scale := q.scale(s, v)
		var min reg.VecVirtual
		if q.kind.mins {
			min = q.scale(q.kind.subs, v)
		}
		for r := range q.rows {
			sum, d := q.sums[r*q.vectors+v], q.vector()
			VBROADCASTSS(row(q.x, q.x3, q.xStride, r, recordD), d)
			VMULPS(scale, d, d)
			VCVTDQ2PS(sum, sum)
			acc := sum
			if q.acc != nil {
				acc = q.acc[r*q.vectors+v]
				VFMADD231PS(d, sum, acc)
			} else {
				VFMADD213PS(q.result(r, v), d, acc)
			}
			if q.kind.mins {
				low := q.vector()
				VBROADCASTSS(row(q.x, q.x3, q.xStride, r, recordMin), low)
				VFMADD231PS(min, low, acc)
			}
			if q.acc == nil {
				VMOVUPS(acc, q.result(r, v))
			}
		}
	}
}
