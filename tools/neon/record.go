package main

// The kernels that make records of activations and read KV of signed bytes.

// quantize generates the records of blocks. It follows quantizeBlock of engine/cpu, where a value times 1/d is
// at most 127 after rounding, so that no clamp is needed.
func (a *assembly) quantize() {
	k := a.kernel("quantize", "(dst *byte, x *float32, blocks int)", "writes the records of the blocks, at least one.")
	dst, x, blocks, most := k.load("dst"), k.load("x"), k.load("blocks"), k.reg()
	v, m, b := k.vectors(8), k.vectors(8), k.vectors(8)
	limits := k.reg()
	k.op("MOVD $0x%08x, %v", float(0x1p-120), limits)
	consts := k.constants(float(127), float(1))
	infinite, nan := k.reg(), k.reg()
	k.op("MOVD $0x7f800000, %v", infinite)
	k.op("MOVD $0x7fc00000, %v", nan)
	k.loop("block", blocks, 1, func() {
		k.ld1(v[:4], x)
		k.ld1(v[4:], x)
		for i := range v { // twice the magnitudes, as integers
			k.shl32(m[i], v[i], 1)
		}
		for n := 4; n > 0; n /= 2 {
			for i := range n {
				k.umax(m[i], m[i], m[i+n])
			}
		}
		k.umaxv(m[0], m[0])
		k.op("FMOVS F%d, %v", m[0], most)
		k.op("LSR $1, %v, %v", most, most)
		k.op("CMPW %v, %v", infinite, most)
		k.op("BHS infinite")
		k.op("FMOVS %v, F%d", most, m[0])
		d, inverse, sum, half, low := m[0], m[1], m[2], m[3], m[4]
		k.op("FDIVS F%d, F%d, F%d", consts[0], d, d)
		k.op("FMOVS F%d, %v", d, most)
		k.op("CMPW %v, %v", limits, most)
		k.op("BLO small")
		k.op("FDIVS F%d, F%d, F%d", d, consts[1], inverse)
		for i := range v {
			k.fmulLane(b[i], v[i], inverse, 0)
		}
		for i := range b {
			k.fcvtns(b[i], b[i])
		}
		k.add32(half, b[0], b[1])
		k.add32(v[0], b[2], b[3])
		k.add32(sum, b[4], b[5])
		k.add32(v[1], b[6], b[7])
		k.add32(half, half, v[0])
		k.add32(sum, sum, v[1])
		k.add32(sum, sum, half)
		k.addv(half, half)
		k.addv(sum, sum)
		for i := range 4 {
			k.op("VUZP1 V%d.H8, V%d.H8, V%d.H8", b[2*i+1], b[2*i], v[i])
		}
		for i := range 2 {
			k.op("VUZP1 V%d.B16, V%d.B16, V%d.B16", v[2*i+1], v[2*i], b[i])
		}
		k.scvtfSingle(low, sum)
		k.op("FMULS F%d, F%d, F%d", d, low, low)
		k.stp(b[0], b[1], dst, 0)
		k.op("FSTPS (F%d, F%d), 32(%v)", d, low, dst)
		k.op("FSTPS (F%d, F%d), 40(%v)", sum, half, dst)
		k.label("next")
		k.advance(recordSize, dst)
	})
	k.end()
	k.label("infinite")
	k.clearRecord(dst, v[0])
	k.op("MOVW %v, 32(%v)", nan, dst)
	k.op("MOVW %v, 36(%v)", nan, dst)
	k.op("JMP next")
	k.label("small")
	k.clearRecord(dst, v[0])
	k.op("JMP next")
}

// clearRecord writes zeros. Register v is free.
func (k *kernel) clearRecord(dst reg, v vec) {
	k.zero(v)
	k.stp(v, v, dst, 0)
	k.op("FMOVQ F%d, 32(%v)", v, dst)
}

// widenQ8 generates the widening of rows of signed bytes.
func (a *assembly) widenQ8() {
	k := a.kernel("widenQ8", "(dst *float32, src *byte, rows, dim int)",
		"widens rows of dim signed bytes times the f16 scales of their blocks of 32, which follow the row; rows is positive, dim a positive multiple of 32.")
	dst, src, rows, dim := k.load("dst"), k.load("src"), k.load("rows"), k.load("dim")
	scales, left, bits := k.reg(), k.reg(), k.reg()
	k.op("MOVD $constants%s<>+%d(SB), %v", k.suffix, k.sequence(k.allTops()...), bits)
	tops, bytes, wide, scale := k.vectors(4), k.vectors(2), k.vectors(8), k.vector()
	k.ld1(tops, bits)
	k.loop("rows", rows, 1, func() {
		k.op("ADD %v, %v, %v", dim, src, scales)
		k.op("LSR $5, %v, %v", dim, left)
		k.loop("blocks", left, 1, func() {
			k.op("MOVHU.P 2(%v), %v", scales, bits)
			k.op("FMOVS %v, F%d", bits, scale)
			k.op("FCVTHS F%d, F%d", scale, scale)
			k.ldpNext(bytes[0], bytes[1], src)
			for i := range wide {
				k.lookUp(wide[i], bytes[i/4], tops[i%4])
			}
			for i := range wide {
				k.fromTop(true, wide[i], wide[i])
			}
			for i := range wide {
				k.fmulLane(wide[i], wide[i], scale, 0)
			}
			k.st1(wide[:4], dst)
			k.st1(wide[4:], dst)
		})
		k.op("MOVD %v, %v", scales, src)
	})
	k.end()
}

// allTops returns four vectors of indices: they take bytes 0 to 3, 4 to 7, 8 to 11 and 12 to 15 to the tops of
// lanes.
func (a *assembly) allTops() []uint32 {
	out := make([]uint32, 16)
	for i := range out {
		out[i] = uint32(i)<<24 | 0xffffff
	}
	return out
}
