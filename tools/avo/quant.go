package main

import (
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

// quantAhead is how many bytes ahead a panel is prefetched: 2 to 4 blocks. More is slower: the lines of
// the first-level cache are replaced before they are read.
const quantAhead = 4096

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
	{"n5h", asNibbles, 1, 16, halves, false, 1, 31}, {"n5hm", asNibbles, 1, 0, halves, true, 1, 31}, {"n5km", asNibbles, 1, 0, factors, true, 1, 31},
	{"n6k2", asNibbles, 2, 32, factors, false, 2, 63},
}

// superBytes returns the size of the f16 of 8 blocks: those of scales and, if there are any, of minima.
func (k *quantKind) superBytes() int {
	if k.mins {
		return 2 * 2 * panelCols
	}
	return 2 * panelCols
}

// scaleBytes returns the size of a scale or a minimum.
func (k *quantKind) scaleBytes() int { return []int{halves: 2, floats: 4, factors: 1}[k.scales] }

// heads returns the number of scales and minima of a column of a block.
func (k *quantKind) heads() int {
	if k.mins {
		return k.subs + 1
	}
	return k.subs
}

// weightBytes returns the size of a block's weights in a panel.
func (k *quantKind) weightBytes() int {
	if k.weights == asBytes {
		return 8 * 4 * panelCols
	}
	return (4 + k.high) * 4 * panelCols
}

// quant is the state of one kernel's body. The kernel takes the columns of a block in groups of as many
// vectors as leave their unpacked weights in registers, and multiplies all rows by a group before it
// goes on to the next. So unpacking costs the same for any number of rows. Each row adds to its sums in
// memory, in the first-level cache.
type quant struct {
	*target
	kind    quantKind
	vectors int // of a group

	x, xStride    reg.Register // the records of the block
	out, oStride  reg.Register // the first row's sums of the group
	head, weights reg.Register // scales and weights of the group
	ahead         reg.Register // next address to prefetch
	super, left   reg.Register // pointer to the f16 of factors, and how many blocks still share them
	rowX, rowOut  reg.Register // record and sums of the row in progress

	w      [8][]reg.VecVirtual       // [quad][vector] weights of the group, or their magnitudes if they are signed
	signs  Mem                       // signed weights, [quad]
	scales [][]reg.VecVirtual        // [sub-block, then minima][vector]
	table  reg.VecVirtual            // of nibbles
	ones   reg.VecVirtual            // to add pairs, of AVX2
	planes map[[2]int]reg.VecVirtual // high bits in registers, by plane and vector
}

// quant generates the product of any number of rows and a panel.
func (t *target) quant(kind quantKind) {
	q := &quant{target: t, kind: kind, vectors: 1}
	if t.wide() { // 16 of 32 registers hold weights, instead of 8 of 16
		q.vectors = 2
	}
	t.text("quant"+kind.name, "(out *float32, outStride int, x *byte, xStride int, panel, more *byte, rows, blocks, first int)",
		"adds the product of rows of records and blocks of a panel to out, or starts out if first is not 0; strides are in bytes. more is the table of nibbles, or what 8 blocks multiply their scales by.")
	q.start()
	width := q.vectors * t.bytes() // of a group's sums, and of its part of a quad
	groups, size := 4*panelCols/width, kind.heads()*panelCols*kind.scaleBytes()+kind.weightBytes()
	Label("block")
	left := GP64()
	MOVQ(I32(groups), left)
	loop("group", left, 1, func() {
		q.unpack(size / groups)
		rows := GP64()
		MOVQ(t.param("rows"), rows)
		MOVQ(q.x, q.rowX)
		MOVQ(q.out, q.rowOut)
		loop("row", rows, 1, func() {
			q.row()
			ADDQ(q.xStride, q.rowX)
			ADDQ(q.oStride, q.rowOut)
		})
		advance(width, q.out, q.weights)
		advance(width/4*kind.scaleBytes(), q.head)
		if kind.scales == factors {
			advance(width/2, q.super)
		}
	})
	ADDQ(I32(size-4*panelCols), q.weights)
	ADDQ(I32(size-panelCols*kind.scaleBytes()), q.head)
	SUBQ(I32(4*panelCols), q.out)
	ADDQ(I32(recordSize), q.x)
	if kind.scales == factors {
		SUBQ(I32(2*panelCols), q.super)
		DECQ(q.left)
		JNZ(LabelRef("sameSuper"))
		ADDQ(I32(kind.superBytes()), q.super)
		MOVQ(I32(superBlocks), q.left)
		Label("sameSuper")
	}
	DECQ(t.param("blocks"))
	JNZ(LabelRef("block"))
	end()
}

// start generates the loads of parameters and, if parameter first is set, zeros in all sums.
func (q *quant) start() {
	q.out, q.oStride = Load(Param("out"), GP64()), Load(Param("outStride"), GP64())
	q.x, q.xStride = Load(Param("x"), GP64()), Load(Param("xStride"), GP64())
	q.head = Load(Param("panel"), GP64())
	q.weights, q.ahead, q.rowX, q.rowOut = GP64(), GP64(), GP64(), GP64()
	LEAQ(Mem{Base: q.head, Disp: q.kind.heads() * panelCols * q.kind.scaleBytes()}, q.weights)
	LEAQ(Mem{Base: q.head, Disp: quantAhead}, q.ahead)
	if q.kind.scales == factors {
		q.super, q.left = Load(Param("more"), GP64()), GP64()
		MOVQ(I32(superBlocks), q.left)
	}
	if q.signed() {
		q.signs = AllocLocal(8 * q.bytes())
	}
	if !q.vnni { // in a register: the loads of activations leave no room for others
		q.ones = q.loaded(q.constant("int16 ones"))
	}
	first, rows, zero := Load(Param("first"), GP64()), Load(Param("rows"), GP64()), q.vector()
	TESTQ(first, first)
	JZ(LabelRef("block"))
	q.zero(zero)
	MOVQ(q.out, q.rowOut)
	loop("clear", rows, 1, func() {
		for at := 0; at < 4*panelCols; at += q.bytes() {
			VMOVUPS(zero, Mem{Base: q.rowOut, Disp: at})
		}
		ADDQ(q.oStride, q.rowOut)
	})
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

// row generates the products of one row and the group: the integer sums of each sub-block and their steps
// of the chain, then the step of the minima.
func (q *quant) row() {
	var sums [][]reg.VecVirtual // [sub-block][vector]
	quads := 8 / q.kind.subs
	for s := range q.kind.subs {
		if q.vnni {
			sums = append(sums, q.dots(s*quads, quads, q.offset(s)))
		} else {
			sums = append(sums, []reg.VecVirtual{q.pairs(s*quads, quads, q.offset(s))})
		}
	}
	for v := range q.vectors {
		at := Mem{Base: q.rowOut, Disp: v * q.bytes()}
		last := Op(at)
		for s := range sums {
			sum, d := sums[s][v], q.scaled(recordD, q.scales[s][v])
			VCVTDQ2PS(sum, sum)
			VFMADD213PS(last, d, sum)
			last = sum
		}
		sum := sums[q.kind.subs-1][v]
		if q.kind.mins {
			q.addScaled(recordMin, q.scales[q.kind.subs][v], sum)
		}
		VMOVUPS(sum, at)
	}
}

// scaled generates the product of v and the f32 at an offset in the row's record.
func (q *quant) scaled(at int, v reg.VecVirtual) reg.VecVirtual {
	d := q.vector()
	if q.target.wide() {
		VMULPS_BCST(Mem{Base: q.rowX, Disp: at}, v, d)
		return d
	}
	VBROADCASTSS(Mem{Base: q.rowX, Disp: at}, d)
	VMULPS(v, d, d)
	return d
}

// addScaled generates the addition of the same product to sum, without a rounding between.
func (q *quant) addScaled(at int, v, sum reg.VecVirtual) {
	if q.target.wide() {
		VFMADD231PS_BCST(Mem{Base: q.rowX, Disp: at}, v, sum)
		return
	}
	d := q.vector()
	VBROADCASTSS(Mem{Base: q.rowX, Disp: at}, d)
	VFMADD231PS(d, v, sum)
}

// offset loads offset·Σ q of sub-block s of the row, or returns nil if weights have no offset.
func (q *quant) offset(s int) reg.VecVirtual {
	shift := q.added()
	if shift < 0 {
		return nil
	}
	added, at := q.vector(), recordSum
	if q.kind.subs == 2 && s == 0 {
		at = recordHalf
	}
	VPBROADCASTD(Mem{Base: q.rowX, Disp: at}, added)
	if q.kind.subs == 2 && s == 1 {
		half := q.vector()
		VPBROADCASTD(Mem{Base: q.rowX, Disp: recordHalf}, half)
		VPSUBD(half, added, added)
	}
	VPSLLD(U8(shift), added, added)
	return added
}

// dots generates the sums of n quads from j on by VNNI. They start at -offset, which cancels what the
// offset of the weights adds. An instruction waits five cycles for the one before it in its chain, and
// the processor holds only so many that wait. So eight quads are two chains of four.
func (q *quant) dots(j, n int, offset reg.VecVirtual) []reg.VecVirtual {
	chains := make([][]reg.VecVirtual, n/4)
	for i := range chains {
		chains[i] = q.target.vectors(q.vectors)
		for _, sum := range chains[i] {
			q.zero(sum)
			if i == 0 && offset != nil {
				VPSUBD(offset, sum, sum)
			}
		}
	}
	for i := range n {
		chain := chains[i%len(chains)]
		if q.target.wide() {
			for v, sum := range chain {
				VPDPBUSD_BCST(Mem{Base: q.rowX, Disp: 4 * (j + i)}, q.w[j+i][v], sum)
			}
			continue
		}
		VPDPBUSD(q.activations(j+i), q.w[j+i][0], chain[0])
	}
	for _, more := range chains[1:] {
		for v, sum := range chains[0] {
			VPADDD(more[v], sum, sum)
		}
	}
	return chains[0]
}

// activations loads quad j of the row.
func (q *quant) activations(j int) reg.VecVirtual {
	a := q.vector()
	VPBROADCASTD(Mem{Base: q.rowX, Disp: 4 * j}, a)
	return a
}

// pairs generates the sum of n quads from j on, less offset, by the instructions of AVX2. One adds pairs
// of products in 16 bits and needs one unsigned factor, so the sign of a signed weight is moved to the
// activation. The sums of a period of quads fit into 16 bits. They are then widened to 32 bits.
func (q *quant) pairs(j, n int, offset reg.VecVirtual) reg.VecVirtual {
	var sum reg.VecVirtual
	for i := 0; i < n; i += q.period() {
		var chains []reg.VecVirtual // two shorten the wait
		for at := range q.period() {
			products := q.activations(j + i + at)
			if q.signed() {
				VPSIGNB(q.signs.Offset((j+i+at)*q.bytes()), products, products)
			}
			VPMADDUBSW(products, q.w[j+i+at][0], products)
			if at < 2 {
				chains = append(chains, products)
				continue
			}
			VPADDW(products, chains[at%2], chains[at%2])
		}
		part := chains[0]
		if len(chains) > 1 {
			VPADDW(chains[1], part, part)
		}
		VPMADDWD(q.ones, part, part)
		if sum == nil {
			sum = part
			continue
		}
		VPADDD(part, sum, sum)
	}
	if offset != nil {
		VPSUBD(offset, sum, sum)
	}
	return sum
}

// unpack generates the unpacking of the group's weights and scales to registers, and the prefetches of as
// many bytes as the group takes of a block. The prefetches go through the panel in the order of
// addresses, whatever the order of use: the processor's own prefetcher follows only such a sequence, and
// stops at the end of each page of 4 KiB.
func (q *quant) unpack(size int) {
	if q.kind.weights == byTable {
		q.loadTable()
	}
	q.planes = map[[2]int]reg.VecVirtual{}
	lines, fetched := (size+cacheLine-1)/cacheLine, 0
	for j := 0; j < 8; j += 2 {
		q.pair(j)
		for ; fetched*8 < lines*(j+2); fetched++ {
			PREFETCHT0(Mem{Base: q.ahead, Disp: cacheLine * fetched})
		}
	}
	ADDQ(I32(size), q.ahead)
	q.scales = make([][]reg.VecVirtual, q.kind.heads())
	for i := range q.scales {
		for v := range q.vectors {
			q.scales[i] = append(q.scales[i], q.scale(i, v))
		}
	}
}

// cacheLine is the size of a cache line in bytes.
const cacheLine = 64

// scale generates the load of scale i of vector v, or for i = subs of its minima, and returns the
// register.
func (q *quant) scale(i, v int) reg.VecVirtual {
	dst, at := q.vector(), Mem{Base: q.head, Disp: q.kind.scaleBytes() * (i*panelCols + v*q.lanes)}
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
