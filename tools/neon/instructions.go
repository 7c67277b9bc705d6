package main

import "fmt"

// The methods of this file write one instruction each, or say so. They take the destination first, as
// Arm's manual does.

// list returns registers as the operand of a load or store.
func list(v []vec, arrangement string) string {
	s := "["
	for i, r := range v {
		if i > 0 {
			s += ", "
		}
		s += fmt.Sprintf("V%d.%s", r, arrangement)
	}
	return s + "]"
}

// ld1 loads up to four consecutive registers and advances the pointer.
func (k *kernel) ld1(v []vec, p reg) { k.op("VLD1.P %d(%v), %s", 16*len(v), p, list(v, "S4")) }

// ld1Step loads up to four consecutive registers and advances the pointer by step.
func (k *kernel) ld1Step(v []vec, p, step reg) { k.op("VLD1.P (%v)(%v), %s", p, step, list(v, "S4")) }

// st1 stores up to four consecutive registers and advances the pointer.
func (k *kernel) st1(v []vec, p reg) { k.op("VST1.P %s, %d(%v)", list(v, "S4"), 16*len(v), p) }

// ldr loads 16 bytes, ldrNext advances the pointer too.
func (k *kernel) ldr(v vec, p reg, at int)    { k.op("FMOVQ %d(%v), F%d", at, p, v) }
func (k *kernel) ldrNext(v vec, p reg)        { k.op("FMOVQ.P 16(%v), F%d", p, v) }
func (k *kernel) ldp(a, b vec, p reg, at int) { k.op("FLDPQ %d(%v), (F%d, F%d)", at, p, a, b) }

// ldrSingle loads 4 bytes into lane 0 and advances the pointer.
func (k *kernel) ldrSingle(v vec, p reg) { k.op("FMOVS.P 4(%v), F%d", p, v) }

// add64 adds an integer to a general register.
func (k *kernel) advance(n int, to ...reg) {
	for _, r := range to {
		if n != 0 {
			k.op("ADD $%d, %v, %v", n, r, r)
		}
	}
}

// zero clears a vector.
func (k *kernel) zero(d vec) { k.op("VEOR V%d.B16, V%d.B16, V%d.B16", d, d, d) }

// mov copies a vector.
func (k *kernel) mov(d, n vec) { k.op("VMOV V%d.B16, V%d.B16", n, d) }

// fmla is d + n·m, rounded once.
func (k *kernel) fmla(d, n, m vec) { k.op("VFMLA V%d.S4, V%d.S4, V%d.S4", m, n, d) }

// fmlaLane is fmla with lane i of m.
func (k *kernel) fmlaLane(d, n, m vec, i int) {
	k.word(lane(0x4f801000, d, n, m, i), "", "fmla v%d.4s, v%d.4s, v%d.s[%d]", d, n, m, i)
}

// fmulLane is the product of n and lane i of m.
func (k *kernel) fmulLane(d, n, m vec, i int) {
	k.word(lane(0x4f809000, d, n, m, i), "", "fmul v%d.4s, v%d.4s, v%d.s[%d]", d, n, m, i)
}

// lane encodes an instruction with three registers, the last of which is a lane of 32 bits.
func lane(code uint32, d, n, m vec, i int) uint32 {
	return same(code, d, n, m) | uint32(i&1)<<21 | uint32(i>>1)<<11
}

// same encodes an instruction with three registers.
func same(code uint32, d, n, m vec) uint32 { return code | uint32(m)<<16 | uint32(n)<<5 | uint32(d) }

// two encodes an instruction with two registers.
func two(code uint32, d, n vec) uint32 { return code | uint32(n)<<5 | uint32(d) }

// s4 writes an instruction of three vectors of 32-bit elements.
func (k *kernel) s4(name string, code uint32, d, n, m vec) {
	k.word(same(code, d, n, m), "", name+" v%d.4s, v%d.4s, v%d.4s", d, n, m)
}

func (k *kernel) fadd(d, n, m vec)  { k.s4("fadd", 0x4e20d400, d, n, m) }
func (k *kernel) fsub(d, n, m vec)  { k.s4("fsub", 0x4ea0d400, d, n, m) }
func (k *kernel) fmul(d, n, m vec)  { k.s4("fmul", 0x6e20dc00, d, n, m) }
func (k *kernel) fdiv(d, n, m vec)  { k.s4("fdiv", 0x6e20fc00, d, n, m) }
func (k *kernel) faddp(d, n, m vec) { k.s4("faddp", 0x6e20d400, d, n, m) }

// fmaxnm is the larger of n and m, or the number where the other is a quiet NaN.
func (k *kernel) fmaxnm(d, n, m vec) { k.s4("fmaxnm", 0x4e20c400, d, n, m) }

// fmaxnmv is fmaxnm over all lanes of n; the result is in lane 0.
func (k *kernel) fmaxnmv(d, n vec) {
	k.word(two(0x6e30c800, d, n), "", "fmaxnmv s%d, v%d.4s", d, n)
}

// fcmgt sets all bits of the lanes where n > m, which is false for NaN.
func (k *kernel) fcmgt(d, n, m vec) { k.s4("fcmgt", 0x6ea0e400, d, n, m) }

// s4s writes an instruction of two vectors of 32-bit elements.
func (k *kernel) s4s(name string, code uint32, d, n vec) {
	k.word(two(code, d, n), "", name+" v%d.4s, v%d.4s", d, n)
}

func (k *kernel) fneg(d, n vec) { k.s4s("fneg", 0x6ea0f800, d, n) }

// frintn rounds to an integer, ties to even; fcvtzs converts to one.
func (k *kernel) frintn(d, n vec) { k.s4s("frintn", 0x4e218800, d, n) }
func (k *kernel) fcvtzs(d, n vec) { k.s4s("fcvtzs", 0x4ea1b800, d, n) }

// isZero sets all bits of the lanes of 32 bits that are zero.
func (k *kernel) isZero(d, n vec) {
	k.word(two(0x4ea09800, d, n), "", "cmeq v%d.4s, v%d.4s, #0", d, n)
}

// bic is n without the bits of m.
func (k *kernel) bic(d, n, m vec) {
	k.word(same(0x4e601c00, d, n, m), "", "bic v%d.16b, v%d.16b, v%d.16b", d, n, m)
}

// bit replaces the bits of d that are set in m by those of n.
func (k *kernel) bit(d, n, m vec) {
	k.word(same(0x6ea01c00, d, n, m), "", "bit v%d.16b, v%d.16b, v%d.16b", d, n, m)
}

// add and sub are of integers of 32 bits.
func (k *kernel) add32(d, n, m vec)      { k.op("VADD V%d.S4, V%d.S4, V%d.S4", m, n, d) }
func (k *kernel) sub32(d, n, m vec)      { k.op("VSUB V%d.S4, V%d.S4, V%d.S4", m, n, d) }
func (k *kernel) shl32(d, n vec, by int) { k.op("VSHL $%d, V%d.S4, V%d.S4", by, n, d) }

// zip1D and zip2D combine the lower and the upper halves of n and m.
func (k *kernel) zip1D(d, n, m vec) { k.op("VZIP1 V%d.D2, V%d.D2, V%d.D2", m, n, d) }
func (k *kernel) zip2D(d, n, m vec) { k.op("VZIP2 V%d.D2, V%d.D2, V%d.D2", m, n, d) }

// widenLow converts the lower four elements of n, f16 or bf16, to f32; widenHigh the upper four.
func (k *kernel) widenLow(kind string, d, n vec) {
	if kind == "f16" {
		k.word(two(0x0e217800, d, n), "", "fcvtl v%d.4s, v%d.4h", d, n)
		return
	}
	k.word(two(0x2e613800, d, n), "", "shll v%d.4s, v%d.4h, #16", d, n)
}

func (k *kernel) widenHigh(kind string, d, n vec) {
	if kind == "f16" {
		k.word(two(0x4e217800, d, n), "", "fcvtl2 v%d.4s, v%d.8h", d, n)
		return
	}
	k.word(two(0x6e613800, d, n), "", "shll2 v%d.4s, v%d.8h, #16", d, n)
}

// narrowLow rounds n to f16 and writes the lower half of d, narrowHigh the upper half.
func (k *kernel) narrowLow(d, n vec) {
	k.word(two(0x0e216800, d, n), "", "fcvtn v%d.4h, v%d.4s", d, n)
}

func (k *kernel) narrowHigh(d, n vec) {
	k.word(two(0x4e216800, d, n), "", "fcvtn2 v%d.8h, v%d.4s", d, n)
}

// prefetch asks for the cache line at bytes after p, into the first- or the second-level cache.
func (k *kernel) prefetch(p reg, at, cache int) { k.op("PRFM %d(%v), PLDL%dKEEP", at, p, cache) }
