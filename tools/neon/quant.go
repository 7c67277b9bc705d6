package main

// Products with quantised weights. The files quant.go and quantgemm.go of engine/cpu describe the
// blocks of panels, their order, and the records of activations.

// quantKind is one layout of blocks.
type quantKind struct {
	name    string
	weights packing
	high    int // bits of a weight above its nibble
	added   int // offset of a stored weight
	scales  scaling
	mins    bool
	subs    int
	most    int // largest magnitude of a weight as it is multiplied
}

// packing is the storage of weights: signed bytes, nibbles that are integers themselves or their lower
// bits, or nibbles that are indices into a table.
type packing int

const (
	asBytes packing = iota
	asNibbles
	byTable
)

// scaling is the storage of scales and minima: f16, f32, or bytes that multiply an f16 shared by eight
// blocks.
type scaling int

const (
	halves scaling = iota
	floats
	factors
)

var quantKinds = []quantKind{
	{"n4h", asNibbles, 0, 8, halves, false, 1, 15}, {"n4hm", asNibbles, 0, 0, halves, true, 1, 15}, {"n4km", asNibbles, 0, 0, factors, true, 1, 15},
	{"t4h", byTable, 0, 0, halves, false, 1, 127}, {"t4w", byTable, 0, 0, floats, false, 1, 12},
	{"b8h", asBytes, 0, 0, halves, false, 1, 128},
	{"n5h", asNibbles, 1, 16, halves, false, 1, 31}, {"n5hm", asNibbles, 1, 0, halves, true, 1, 31}, {"n5km", asNibbles, 1, 0, factors, true, 1, 31},
	{"n6k2", asNibbles, 2, 32, factors, false, 2, 63},
}

// period returns the number of quads whose products are added up in 16 bits. A lane gets one product of
// each, of at most most·127.
func (q *quantKind) period() int {
	p := 1
	for 2*p <= 8/q.subs && 2*p*q.most*127 < 1<<15 {
		p *= 2
	}
	return p
}

// superHeads returns the number of f16 that eight blocks of a column share.
func (q *quantKind) superHeads() int {
	switch {
	case q.scales != factors:
		return 0
	case q.mins:
		return 2
	}
	return 1
}

// A record has 32 bytes of activations, then a vector of these.
const (
	recordSize = 48
	laneD      = 0
	laneMin    = 1
	laneSum    = 2
	laneHalf   = 3
)

const (
	groupCols   = 8 // two vectors of sums, and a quad in two vectors of bytes
	quantGroups = 8 // of a panel
	superBlocks = 8 // a panel has the groups of so many blocks, and of each group its blocks
	nibbleBytes = 4 * 4 * groupCols
	planeBytes  = 4 * groupCols
)

// quant is the state of one kernel. Each kernel reads a panel from end to end and has two bodies.
//
// That for one row keeps the sums of a group in registers through eight blocks, and unpacks half a block at
// a time. That for several rows unpacks a group of a block to 16 registers and multiplies all rows by
// it, so unpacking costs the same for any number of rows; each row adds to its sums in memory, in
// the first-level cache.
//
// Weights are multiplied as signed bytes. Where they are stored with an offset, a sum starts at minus the
// offset times Σq.
type quant struct {
	*kernel
	kind quantKind
	dot  bool // products by SDOT, else in 16 bits
	one  bool // the body for one row

	out, outStride, x, xStride, panel, more, rows, blocks, first reg

	inSuper, groups, left    reg // blocks before the next eight; groups and blocks that are left
	groupOut, groupMore, rec reg // of the group: sums and shared f16; and the records of the block
	count, rowX, rowOut      reg // rows that are left, record and sums of the row
	rowNext, twoRows         reg // sums of the row after it, and the distance of rows of a pair
	step                     reg // from the last nibbles of a block to the next block, past the planes
	rest                     reg // from the tail of a record to the next row
	index                    reg // address of the indices

	quantVectors
}

// quantVectors assigns the vector registers of a body. Some are free again when others begin.
type quantVectors struct {
	weights        vec    // of a half or a whole block: two for each quad
	packed, planes vec    // four each
	head, final    vec    // scales and minima, as stored and as f32
	mask, high     vec    // of nibbles and of the bits above them
	table, moved   vec    // of nibbles, and a plane that is shifted
	top            vec    // two indices that take bytes to the tops of lanes
	negative       vec    // minus the offset
	acts, tail     vec    // of the record
	sums           [4]vec // in 16 bits of each vector the lower and the upper half; else lower ones alone
	products       [2]vec
	scaled         [2]vec
	supers         [4]vec // f16 that blocks share, widened: of scales, of minima
	result         vec    // two
}

// quants generates the products of all kinds.
func (a *assembly) quants() {
	for _, kind := range quantKinds {
		a.quant(kind)
	}
	if !a.has(dot) { // the level above takes these kernels
		a.quantize()
		a.widenQ8()
	}
}

func (a *assembly) quant(kind quantKind) {
	q := &quant{kind: kind, dot: a.has(dot), kernel: a.kernel("quant"+kind.name,
		"(out *float32, outStride int, x *byte, xStride int, panel, more *byte, rows, blocks, first int)",
		"adds the product of rows of records and blocks of a panel to out, or starts out if first is not 0; strides are in bytes. more is the table of nibbles, or what 8 blocks multiply their scales by.")}
	q.out, q.outStride, q.x, q.xStride, q.panel = q.load("out"), q.load("outStride"), q.load("x"), q.load("xStride"), q.load("panel")
	q.more, q.rows, q.blocks, q.first = q.load("more"), q.load("rows"), q.load("blocks"), q.load("first")
	for _, r := range []*reg{
		&q.inSuper, &q.groups, &q.left, &q.groupOut, &q.groupMore, &q.rec, &q.count, &q.rowX, &q.rowOut, &q.rowNext, &q.twoRows, &q.step, &q.rest, &q.index,
	} {
		*r = q.reg()
	}
	q.clear()
	if kind.high > 0 {
		q.op("MOVD $%d, %v", nibbleBytes/2+planeBytes*kind.high, q.step)
	}
	if kind.scales == factors {
		q.op("MOVD $constants%s<>+%d(SB), %v", q.suffix, q.sequence(q.allTops()[:8]...), q.index)
	}
	q.op("CMP $1, %v", q.rows)
	q.op("BEQ single")
	q.several()
	q.label("single")
	q.one = true
	q.single()
}

// clear writes zeros to all sums if parameter first is set.
func (q *quant) clear() {
	q.op("CBZ %v, start", q.first)
	q.zero(0)
	q.op("MOVD %v, %v", q.rows, q.count)
	q.op("MOVD %v, %v", q.out, q.rowOut)
	q.loop("clear", q.count, 1, func() {
		for g := range quantGroups {
			q.stp(0, 0, q.rowOut, 4*groupCols*g)
		}
		q.op("ADD %v, %v", q.outStride, q.rowOut)
	})
	q.label("start")
}

// walk generates the loops over the panel: over eight blocks at a time, over groups, and over the blocks of a
// group. begin and end are done for each group, block for each block.
func (q *quant) walk(name string, begin, block, end func()) {
	q.label(name + "Super")
	q.op("MOVD $%d, %v", superBlocks, q.inSuper)
	q.op("MOVD $%d, %v", quantGroups, q.groups)
	q.op("CMP %v, %v", q.inSuper, q.blocks)
	q.op("CSEL LT, %v, %v, %v", q.blocks, q.inSuper, q.inSuper)
	q.op("MOVD %v, %v", q.out, q.groupOut)
	if q.kind.scales == factors {
		q.op("MOVD %v, %v", q.more, q.groupMore)
	}
	q.loop(name+"Group", q.groups, 1, func() {
		q.op("MOVD %v, %v", q.inSuper, q.left)
		q.op("MOVD %v, %v", q.x, q.rec)
		begin()
		q.loop(name+"Block", q.left, 1, block)
		end()
		q.advance(4*groupCols, q.groupOut)
		if q.kind.scales == factors {
			q.advance(2*groupCols, q.groupMore)
		}
	})
	q.op("MOVD %v, %v", q.rec, q.x)
	q.advance(2*groupCols*quantGroups*q.kind.superHeads(), q.more)
	q.op("SUBS %v, %v", q.inSuper, q.blocks)
	q.op("BNE %sSuper", name)
	q.end()
}

// single generates the body for one row.
func (q *quant) single() {
	q.quantVectors = quantVectors{
		weights: 0, packed: 8, planes: 12, head: 16, final: 0, mask: 23, high: 24, table: 24, moved: 15, top: 18, negative: 25, acts: 20, tail: 22,
		sums: [4]vec{26, 27}, products: [2]vec{12, 13}, scaled: [2]vec{4, 5}, supers: [4]vec{25, 28, 29, 14}, result: 30,
	}
	if q.kind.subs == 2 {
		q.moved, q.negative = 26, 29
	}
	if q.kind.scales == floats {
		q.final = q.head
	}
	if !q.dot {
		q.acts, q.sums = q.packed, [4]vec{20, 21, 26, 27}
	}
	q.masks()
	if q.kind.scales == factors {
		q.ldp(q.top, q.top+1, q.index, 0)
	}
	q.offset()
	q.walk("one", func() {
		q.ldp(q.result, q.result+1, q.groupOut, 0)
		q.sharedHalves(q.weights)
	}, q.singleBlock, func() { q.stp(q.result, q.result+1, q.groupOut, 0) })
}

func (q *quant) singleBlock() {
	q.loadHead()
	if q.dot {
		q.ld1(run32(q.acts, 3), q.rec)
	} else {
		q.ldr(q.tail, q.rec, 2*16)
	}
	q.loadPlanes()
	for half := range 2 {
		sub, begins, ends := 0, half == 0, half == 1
		if q.kind.subs == 2 {
			sub, begins, ends = half, true, true
		}
		q.unpack(half, q.weights)
		if begins {
			q.begin(sub, q.sums[:2], q.tail)
		}
		if !q.dot {
			q.spread(q.rec)
		}
		for j := range 4 {
			q.quad(4*half+j, q.weights+vec(2*j))
		}
		if ends {
			q.finish(sub)
			q.widenHead(sub)
			q.add(sub, q.results(), q.tail, q.result)
		}
	}
	if !q.dot {
		q.advance(16, q.rec)
	}
}

// several generates the body for two or more rows.
func (q *quant) several() {
	q.quantVectors = quantVectors{
		weights: 0, packed: 20, planes: 24, head: 28, final: 16, mask: 30, high: 18, table: 19, moved: 17, top: 20, negative: 31, acts: 20, tail: 22,
		sums: [4]vec{26, 27, 28, 29}, scaled: [2]vec{30, 30}, supers: [4]vec{22, 23, 24, 25}, result: 23,
	}
	switch {
	case !q.dot:
		q.tail, q.products, q.scaled, q.result = 24, [2]vec{25, 30}, [2]vec{25, 30}, 20
		q.op("SUB $%d, %v, %v", recordSize-16, q.xStride, q.rest)
	case q.kind.subs == 2:
		q.sums, q.scaled = [4]vec{28, 29}, [2]vec{26, 27}
	default:
		q.op("LSL $1, %v, %v", q.outStride, q.twoRows)
	}
	if q.kind.scales == floats {
		q.head = q.final
	}
	q.offset()
	none := func() {}
	q.walk("all", none, q.severalBlock, none)
}

func (q *quant) severalBlock() {
	q.masks()
	q.loadHead()
	q.loadPlanes()
	for half := range 2 {
		q.unpack(half, q.weights+vec(8*half))
	}
	q.sharedHalves(q.supers[3] + 1)
	if q.kind.scales == factors {
		q.ldp(q.top, q.top+1, q.index, 0)
	}
	for sub := range q.kind.subs {
		q.widenHead(sub)
	}
	q.op("MOVD %v, %v", q.rows, q.count)
	q.op("MOVD %v, %v", q.rec, q.rowX)
	q.op("MOVD %v, %v", q.groupOut, q.rowOut)
	if q.dot && q.kind.subs == 1 {
		q.op("ADD %v, %v, %v", q.outStride, q.rowOut, q.rowNext)
		q.op("SUB $2, %v", q.count)
		q.label("pair")
		q.pair()
		q.op("SUBS $2, %v", q.count)
		q.op("BGE pair")
		q.op("TBZ $0, %v, even", q.count) // -1 if a row is left, else -2
		q.dotRow()
		q.label("even")
	} else {
		q.loop("row", q.count, 1, func() {
			if q.dot {
				q.dotRow()
			} else {
				q.row()
			}
		})
	}
	q.advance(recordSize, q.rec)
}

// pair generates the products of two rows by SDOT: more chains than those of one row.
func (q *quant) pair() {
	acts, outs := [2]vec{20, 23}, [2]reg{q.rowOut, q.rowNext}
	for _, a := range acts {
		q.ld1Step(run32(a, 3), q.rowX, q.xStride)
	}
	for r, a := range acts {
		q.begin(0, q.sums[2*r:2*r+2], a+2)
	}
	for j := range 8 {
		for r, a := range acts {
			for v := range 2 {
				q.sdot(q.sums[2*r+v], q.weights+vec(2*j+v), a+vec(j/4), j%4)
			}
		}
	}
	for r, o := range outs {
		q.ldp(acts[r], acts[r]+1, o, 0)
	}
	for r, a := range acts {
		q.add(0, [2]vec(q.sums[2*r:]), a+2, a)
	}
	for r, o := range outs {
		q.st1Step(run32(acts[r], 2), o, q.twoRows)
	}
}

// dotRow generates the products of a row by SDOT.
func (q *quant) dotRow() {
	q.ld1Step(run32(q.acts, 3), q.rowX, q.xStride)
	quads := 8 / q.kind.subs
	for sub := range q.kind.subs {
		q.begin(sub, q.sums[:2], q.tail)
		for j := range quads {
			j += sub * quads
			q.quad(j, q.weights+vec(2*j))
		}
		if sub == 0 {
			q.ldp(q.result, q.result+1, q.rowOut, 0)
		}
		q.add(sub, q.results(), q.tail, q.result)
	}
	q.st1Step(run32(q.result, 2), q.rowOut, q.outStride)
}

// row generates the products of a row in 16 bits. There is no register left to keep the row's sums, which it
// loads last, from one sub-block to the next.
func (q *quant) row() {
	for half := range 2 {
		q.spread(q.rowX)
		for j := range 4 {
			j += 4 * half
			q.quad(j, q.weights+vec(2*j))
		}
		switch {
		case half == 1:
			q.ld1Step(run32(q.tail, 1), q.rowX, q.rest)
			q.finish(q.kind.subs - 1)
			q.ldp(q.result, q.result+1, q.rowOut, 0)
			q.add(q.kind.subs-1, q.results(), q.tail, q.result)
			q.st1Step(run32(q.result, 2), q.rowOut, q.outStride)
		case q.kind.subs == 2:
			q.ldr(q.tail, q.rowX, 16)
			q.finish(0)
			q.ldp(q.result, q.result+1, q.rowOut, 0)
			q.add(0, q.results(), q.tail, q.result)
			q.stp(q.result, q.result+1, q.rowOut, 0)
		}
	}
}
