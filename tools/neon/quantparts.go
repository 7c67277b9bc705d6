package main

// The parts of a block's product: the unpacking of its weights and scales, and the sums of one row.

// masks loads what unpacking needs.
func (q *quant) masks() {
	if q.kind.weights != asBytes {
		q.op("VMOVI $15, V%d.B16", q.mask)
	}
	if q.kind.high > 0 {
		q.op("VMOVI $%d, V%d.B16", (1<<q.kind.high-1)<<4, q.high)
	}
	if q.kind.weights == byTable {
		q.ldr(q.table, q.more, 0)
	}
}

// offset loads minus the offset of weights to all lanes.
func (q *quant) offset() {
	if q.kind.added == 0 {
		return
	}
	q.op("MOVD $%d, %v", -q.kind.added, q.first)
	q.op("VDUP %v, V%d.S4", q.first, q.negative)
}

// sharedHalves loads the f16 that the blocks of a group share and widens them. Register v is free.
func (q *quant) sharedHalves(v vec) {
	for i := range q.kind.superHeads() {
		q.ldr(v, q.groupMore, 2*groupCols*quantGroups*i)
		q.widenLow("f16", q.supers[2*i], v)
		q.widenHigh("f16", q.supers[2*i+1], v)
	}
}

// loadHead loads scales and minima of a block as they are stored.
func (q *quant) loadHead() {
	switch {
	case q.kind.scales == factors:
		q.ldpHalves(q.head, q.head+1, q.panel)
	case q.kind.scales == floats || q.kind.mins:
		q.ldpNext(q.head, q.head+1, q.panel)
	default:
		q.ldrNext(q.head, q.panel)
	}
}

// widenHead converts the scales of a sub-block and, after those of the last, the minima.
func (q *quant) widenHead(sub int) {
	heads := []int{sub}
	if q.kind.mins {
		heads = append(heads, sub+1)
	}
	for _, i := range heads {
		stored := q.head + vec(i)
		for v := range 2 {
			to := q.final + vec(2*i+v)
			switch {
			case q.kind.scales == factors:
				q.lookUp(to, stored, q.top+vec(v))
				q.fromTop(!q.kind.mins, to, to)
				super := v
				if i == q.kind.subs {
					super += 2
				}
				q.fmul(to, to, q.supers[super])
			case q.kind.scales == halves && v == 0:
				q.widenLow("f16", to, stored)
			case q.kind.scales == halves:
				q.widenHigh("f16", to, stored)
			}
		}
	}
}

// loadPlanes loads the bits above the nibbles, which follow the nibbles.
func (q *quant) loadPlanes() {
	for i := range q.kind.high {
		to := q.planes + vec(2*i)
		q.ldp(to, to+1, q.panel, nibbleBytes+planeBytes*i)
	}
}

// unpack unpacks half of a block's weights to eight registers from w on.
func (q *quant) unpack(half int, w vec) {
	if q.kind.weights == asBytes {
		q.ld1(run32(w, 4), q.panel)
		q.ld1(run32(w+4, 4), q.panel)
		return
	}
	if packed := run32(q.packed, 4); half == 1 && q.kind.high > 0 {
		q.ld1Step(packed, q.panel, q.step)
	} else {
		q.ld1(packed, q.panel)
	}
	for pair := range vec(2) {
		for v := range vec(2) {
			low, from := w+4*pair+v, q.packed+2*pair+v
			high, j := low+2, 4*half+2*int(pair)
			q.op("VAND V%d.B16, V%d.B16, V%d.B16", q.mask, from, low)
			q.op("VUSHR $4, V%d.B16, V%d.B16", from, high)
			q.complete(low, j, v)
			q.complete(high, j+1, v)
		}
	}
}

// complete turns w, a nibble of each weight of quad j in vector v, into the weights. A plane has the bits of
// eight or, two bits each, of four quads in every byte, ascending.
func (q *quant) complete(w vec, j int, v vec) {
	if q.kind.weights == byTable {
		q.lookUp(w, q.table, w)
	}
	if q.kind.high == 0 {
		return
	}
	perByte := 8 / q.kind.high
	plane, bits := q.planes+vec(2*(j/perByte))+v, q.moved
	switch left := 4 - j%perByte*q.kind.high; {
	case left > 0:
		q.op("VSHL $%d, V%d.B16, V%d.B16", left, plane, bits)
	case left < 0:
		q.op("VUSHR $%d, V%d.B16, V%d.B16", -left, plane, bits)
	default:
		bits = plane
	}
	q.bit(w, bits, q.high)
}

// begin starts the sums of a sub-block, for SDOT.
func (q *quant) begin(sub int, sums []vec, tail vec) {
	for _, sum := range sums {
		switch {
		case !q.dot:
		case q.kind.added == 0:
			q.zero(sum)
		case q.kind.subs == 2 && sub == 0:
			q.mulLane(sum, q.negative, tail, laneHalf)
		default:
			q.mulLane(sum, q.negative, tail, laneSum)
			q.lessHalf(sum, tail)
		}
	}
}

// lessHalf takes the first half's share from the second's.
func (q *quant) lessHalf(sum, tail vec) {
	if q.kind.subs == 2 {
		q.mlsLane(sum, q.negative, tail, laneHalf)
	}
}

// spread loads four quads of activations, each to all lanes of a register, and advances the pointer.
func (q *quant) spread(p reg) {
	q.op("VLD4R.P 16(%v), %s", p, list(run32(q.acts, 4), "S4"))
}

// quad adds the products of quad j, whose weights are in w and w+1.
func (q *quant) quad(j int, w vec) {
	if q.dot {
		for v := range vec(2) {
			q.sdot(q.sums[v], w+v, q.acts+vec(j/4), j%4)
		}
		return
	}
	period, a := q.kind.period(), q.acts+vec(j%4)
	for v := range vec(2) {
		to := q.sums[2*v : 2*v+2]
		if period > 2 { // the sums of a sub-block stay in 16 bits
			q.multiply(j%period == 0, to, w+v, a)
			continue
		}
		if j%2 == 0 { // with the next quad
			continue
		}
		q.multiply(true, q.products[:], w-2+v, a-1)
		q.multiply(false, q.products[:], w+v, a)
		for i, p := range q.products {
			if j == 1 {
				q.saddlp(to[i], p)
			} else {
				q.sadalp(to[i], p)
			}
		}
	}
}

// multiply generates the products of w and a, of the lower and of the upper eight bytes. They are added to sums
// unless they are the first.
func (q *quant) multiply(first bool, sums []vec, w, a vec) {
	if first {
		q.smull(sums[0], w, a)
		q.smull2(sums[1], w, a)
		return
	}
	q.smlal(sums[0], w, a)
	q.smlal2(sums[1], w, a)
}

// finish turns sums of parts of a column, in 16 or 32 bits, into the sums of a sub-block. Without SDOT only.
func (q *quant) finish(sub int) {
	for v := range 2 {
		if q.dot {
			return
		}
		low, high := q.sums[2*v], q.sums[2*v+1]
		if q.kind.period() > 2 {
			q.saddlp(low, low)
			q.saddlp(high, high)
		}
		q.addp(low, low, high)
		switch {
		case q.kind.added == 0:
		case q.kind.subs == 2 && sub == 0:
			q.mlaLane(low, q.negative, q.tail, laneHalf)
		default:
			q.mlaLane(low, q.negative, q.tail, laneSum)
			q.lessHalf(low, q.tail)
		}
	}
}

// results returns the registers of the sums of one row.
func (q *quant) results() [2]vec {
	if q.dot {
		return [2]vec{q.sums[0], q.sums[1]}
	}
	return [2]vec{q.sums[0], q.sums[2]}
}

// add generates a step of the chain in to and the next register: the sums of a sub-block times its scales
// times d, and after the last sub-block the minima.
func (q *quant) add(sub int, sums [2]vec, tail, to vec) {
	for _, sum := range sums {
		q.scvtf(sum, sum)
	}
	last := q.scaled[1]
	for v, sum := range sums {
		q.fmulLane(q.scaled[v], q.final+vec(2*sub+v), tail, laneD)
		if q.scaled[0] == last {
			q.fmla(to+vec(v), sum, last)
		}
	}
	for v, sum := range sums {
		if q.scaled[0] != last {
			q.fmla(to+vec(v), sum, q.scaled[v])
		}
	}
	if q.kind.mins {
		for v := range vec(2) {
			q.fmlaLane(to+v, q.final+2+v, tail, laneMin)
		}
	}
}
