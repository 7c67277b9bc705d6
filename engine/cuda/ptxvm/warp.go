package ptxvm

import "math/bits"

const (
	lanes = 32
	full  = 1<<lanes - 1
)

// warp is 32 threads of a block. Lanes at the same instruction form a group. The group at the lowest
// instruction runs first, so that groups merge again.
type warp struct {
	b      *block
	r      [][lanes]uint64 // registers, constants, special registers
	p      []uint32        // predicates, one bit per lane
	groups []group
	all    uint32 // lanes that have a thread
	live   uint32 // lanes of all whose thread has not ended
	first  int    // thread of lane 0
	copies asyncCopies
	syncs  uint32 // bar.warp.sync that have run

	last *allocation // of the last access
}

// group is a set of lanes at one instruction.
type group struct {
	pc     int32
	mask   uint32
	parked bool // waits for the other lanes of the warp
}

// start prepares the warp for a new block.
func (w *warp) start(threads int) {
	w.all = full
	if n := threads - w.first; n < lanes {
		w.all = 1<<n - 1
	}
	w.live = w.all
	w.groups = append(w.groups[:0], group{mask: w.live})
	w.copies.reset()
}

// run runs the warp to a barrier and returns true, or to its end and returns false.
func (w *warp) run() (waits bool) {
	for w.live != 0 {
		g := w.pick()
		if g < 0 {
			w.b.at = w.groups[0].pc
			fail(Divergence, bits.TrailingZeros32(w.groups[0].mask), "the other lanes of the warp are elsewhere or have ended early")
		}
		limit := int32(1<<31 - 1)
		for i := range w.groups {
			if i != g && !w.groups[i].parked && w.groups[i].pc < limit {
				limit = w.groups[i].pc
			}
		}
		if w.advance(g, limit) {
			return true
		}
	}
	return false
}

// pick merges groups at the same instruction and returns the lowest group that may run.
func (w *warp) pick() int {
	for i := 0; i < len(w.groups); i++ {
		for j := len(w.groups) - 1; j > i; j-- {
			if w.groups[i].pc == w.groups[j].pc {
				w.groups[i].mask |= w.groups[j].mask
				w.groups[i].parked = false
				w.groups = append(w.groups[:j], w.groups[j+1:]...)
			}
		}
	}
	best := -1
	for i, g := range w.groups {
		if g.mask == w.all {
			g.parked = false
			w.groups[i].parked = false
		}
		if !g.parked && (best < 0 || g.pc < w.groups[best].pc) {
			best = i
		}
	}
	return best
}

// advance runs group i until its next instruction is limit or later, until a branch splits it,
// until a barrier (then it returns true), or until an instruction that waits for other lanes.
func (w *warp) advance(i int, limit int32) (waits bool) {
	g, b := &w.groups[i], w.b
	code := b.k.code
	for g.pc < limit {
		in := &code[g.pc]
		mask := g.mask
		if in.pred >= 0 {
			p := w.p[in.pred]
			if in.negated {
				p = ^p
			}
			mask &= p
		}
		b.at = g.pc
		b.count(bits.OnesCount32(mask))
		switch in.kind {
		case plain:
			if mask != 0 {
				in.do(w, in, mask)
			}
			g.pc++
		case collective:
			if mask != w.all {
				g.parked = true
				return false
			}
			in.do(w, in, mask)
			g.pc++
		case branch:
			if mask == g.mask {
				g.pc = in.target
			} else if g.pc++; mask != 0 {
				g.mask &^= mask
				w.groups = append(w.groups, group{pc: in.target, mask: mask})
				return false
			}
		case exit:
			w.live &^= mask
			if g.mask &^= mask; g.mask == 0 {
				w.groups = append(w.groups[:i], w.groups[i+1:]...)
				return false
			}
			g.pc++
		case barrier:
			if mask != w.all {
				g.parked = true
				return false
			}
			g.pc++
			return true
		}
	}
	return false
}

func (w *warp) setPredicate(p int32, v, mask uint32) { w.p[p] = w.p[p]&^mask | v&mask }

func runSetPredicate(w *warp, in *instr, mask uint32) {
	v := uint32(0)
	if in.imm != 0 {
		v = full
	}
	w.setPredicate(in.d, v, mask)
}

func runUnary(w *warp, in *instr, mask uint32) {
	d, a := &w.r[in.d], &w.r[in.a]
	if mask == full {
		for l := range d {
			d[l] = in.f1(a[l])
		}
		return
	}
	for ; mask != 0; mask &= mask - 1 {
		l := bits.TrailingZeros32(mask)
		d[l] = in.f1(a[l])
	}
}

func runBinary(w *warp, in *instr, mask uint32) {
	d, a, b := &w.r[in.d], &w.r[in.a], &w.r[in.b]
	if mask == full {
		for l := range d {
			d[l] = in.f2(a[l], b[l])
		}
		return
	}
	for ; mask != 0; mask &= mask - 1 {
		l := bits.TrailingZeros32(mask)
		d[l] = in.f2(a[l], b[l])
	}
}

func runTernary(w *warp, in *instr, mask uint32) {
	d, a, b, c := &w.r[in.d], &w.r[in.a], &w.r[in.b], &w.r[in.c]
	for ; mask != 0; mask &= mask - 1 {
		l := bits.TrailingZeros32(mask)
		d[l] = in.f3(a[l], b[l], c[l])
	}
}

func runCompare(w *warp, in *instr, mask uint32) {
	a, b, v := &w.r[in.a], &w.r[in.b], uint32(0)
	for m := mask; m != 0; m &= m - 1 {
		l := bits.TrailingZeros32(m)
		if in.cmp(a[l], b[l]) {
			v |= 1 << l
		}
	}
	w.setPredicate(in.d, v, mask)
}

func runSelect(w *warp, in *instr, mask uint32) {
	d, a, b, p := &w.r[in.d], &w.r[in.a], &w.r[in.b], w.p[in.c]
	for ; mask != 0; mask &= mask - 1 {
		l := bits.TrailingZeros32(mask)
		if p>>l&1 != 0 {
			d[l] = a[l]
		} else {
			d[l] = b[l]
		}
	}
}

// runHalves runs mov.b64 to a pair of registers: the lower half of a, and the upper one.
func runHalves(w *warp, in *instr, mask uint32) {
	for ; mask != 0; mask &= mask - 1 {
		l := bits.TrailingZeros32(mask)
		x := w.r[in.a][l]
		w.r[in.more[0]][l], w.r[in.more[1]][l] = x&0xffffffff, x>>32
	}
}

// runJoin runs mov.b64 from a pair of registers.
func runJoin(w *warp, in *instr, mask uint32) {
	for ; mask != 0; mask &= mask - 1 {
		l := bits.TrailingZeros32(mask)
		w.r[in.d][l] = w.r[in.more[0]][l]&0xffffffff | w.r[in.more[1]][l]<<32
	}
}

// runInsert runs bfi: d is b with its more[0] bits from position c replaced by the lowest bits of a.
// runLogic computes each bit of the result from the three bits of the operands by a table of eight.
func runLogic(w *warp, in *instr, mask uint32) {
	d, a, b, c := &w.r[in.d], &w.r[in.a], &w.r[in.b], &w.r[in.c]
	if in.imm == 0xea && mask == full {
		for l := range d {
			d[l] = uint64(uint32(a[l]&b[l] | c[l]))
		}
		return
	}
	for ; mask != 0; mask &= mask - 1 {
		l, v := bits.TrailingZeros32(mask), uint64(0)
		for i := range 8 {
			if in.imm>>i&1 != 0 {
				v |= (a[l] ^ (uint64(i>>2&1) - 1)) & (b[l] ^ (uint64(i>>1&1) - 1)) & (c[l] ^ (uint64(i&1) - 1))
			}
		}
		d[l] = uint64(uint32(v))
	}
}

func runInsert(w *warp, in *instr, mask uint32) {
	for ; mask != 0; mask &= mask - 1 {
		l := bits.TrailingZeros32(mask)
		at, n := uint32(w.r[in.c][l])&255, uint32(w.r[in.more[0]][l])&255
		field := uint32((uint64(1)<<min(n, 32) - 1) << min(at, 32))
		w.r[in.d][l] = uint64(uint32(w.r[in.b][l])&^field | uint32(w.r[in.a][l]<<min(at, 32))&field)
	}
}
