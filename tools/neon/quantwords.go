package main

import "slices"

// The instructions that only the kernels of quantised weights need. They take the destination first.

// byLane writes an instruction of 32-bit lanes whose last factor is lane i of m.
func (k *kernel) byLane(name string, code uint32, d, n, m vec, i int) {
	k.word(lane(code, d, n, m, i), "", name+" v%d.4s, v%d.4s, v%d.s[%d]", d, n, m, i)
}

// mulLane, mlaLane and mlsLane are of integers: n times a lane of m, added to d, subtracted from d.
func (k *kernel) mulLane(d, n, m vec, i int) { k.byLane("mul", 0x4f808000, d, n, m, i) }
func (k *kernel) mlaLane(d, n, m vec, i int) { k.byLane("mla", 0x6f800000, d, n, m, i) }
func (k *kernel) mlsLane(d, n, m vec, i int) { k.byLane("mls", 0x6f804000, d, n, m, i) }

// sdot adds, in each lane of 32 bits, the products of four signed bytes of n and the four of lane i of m.
func (k *kernel) sdot(d, n, m vec, i int) {
	k.word(lane(0x4f80e000, d, n, m, i), dot, "sdot v%d.4s, v%d.16b, v%d.4b[%d]", d, n, m, i)
}

// smull multiplies the lower eight signed bytes of n and m, smull2 the upper eight; smlal and smlal2 add
// to d.
func (k *kernel) smull(d, n, m vec) {
	k.word(same(0x0e20c000, d, n, m), "", "smull v%d.8h, v%d.8b, v%d.8b", d, n, m)
}

func (k *kernel) smull2(d, n, m vec) {
	k.word(same(0x4e20c000, d, n, m), "", "smull2 v%d.8h, v%d.16b, v%d.16b", d, n, m)
}

func (k *kernel) smlal(d, n, m vec) {
	k.word(same(0x0e208000, d, n, m), "", "smlal v%d.8h, v%d.8b, v%d.8b", d, n, m)
}

func (k *kernel) smlal2(d, n, m vec) {
	k.word(same(0x4e208000, d, n, m), "", "smlal2 v%d.8h, v%d.16b, v%d.16b", d, n, m)
}

// saddlp adds neighbours of 16 bits in 32 bits; sadalp adds them to d.
func (k *kernel) saddlp(d, n vec) {
	k.word(two(0x4e602800, d, n), "", "saddlp v%d.4s, v%d.8h", d, n)
}

func (k *kernel) sadalp(d, n vec) {
	k.word(two(0x4e606800, d, n), "", "sadalp v%d.4s, v%d.8h", d, n)
}

// addp adds neighbours of 32 bits: first those of n, then those of m.
func (k *kernel) addp(d, n, m vec) { k.op("VADDP V%d.S4, V%d.S4, V%d.S4", m, n, d) }

// scvtf converts signed integers to f32.
func (k *kernel) scvtf(d, n vec) { k.s4s("scvtf", 0x4e21d800, d, n) }

// fcvtns rounds to integers, ties to even.
func (k *kernel) fcvtns(d, n vec) { k.s4s("fcvtns", 0x4e21a800, d, n) }

// fromTop converts to f32 the byte at the top of each lane of 32 bits, whose other bits are zero.
func (k *kernel) fromTop(signed bool, d, n vec) {
	if signed {
		k.word(two(0x4f28e400, d, n), "", "scvtf v%d.4s, v%d.4s, #24", d, n)
		return
	}
	k.word(two(0x6f28e400, d, n), "", "ucvtf v%d.4s, v%d.4s, #24", d, n)
}

// umax is the larger of unsigned integers of 32 bits, umaxv that of all lanes of n; addv is the sum of
// all lanes. The result of the last two is in lane 0.
func (k *kernel) umax(d, n, m vec) { k.s4("umax", 0x6ea06400, d, n, m) }
func (k *kernel) umaxv(d, n vec)   { k.word(two(0x6eb0a800, d, n), "", "umaxv s%d, v%d.4s", d, n) }
func (k *kernel) addv(d, n vec)    { k.word(two(0x4eb1b800, d, n), "", "addv s%d, v%d.4s", d, n) }

// scvtfSingle converts lane 0.
func (k *kernel) scvtfSingle(d, n vec) { k.word(two(0x5e21d800, d, n), "", "scvtf s%d, s%d", d, n) }

// lookUp takes the bytes of table that index names, and zero where an index is above 15.
func (k *kernel) lookUp(d, table, index vec) {
	k.op("VTBL V%d.B16, [V%d.B16], V%d.B16", index, table, d)
}

// ldpNext loads 32 bytes, ldpHalves two times 8, and both advance the pointer.
func (k *kernel) ldpNext(a, b vec, p reg)   { k.op("FLDPQ.P 32(%v), (F%d, F%d)", p, a, b) }
func (k *kernel) ldpHalves(a, b vec, p reg) { k.op("FLDPD.P 16(%v), (F%d, F%d)", p, a, b) }

// stp stores 32 bytes.
func (k *kernel) stp(a, b vec, p reg, at int) { k.op("FSTPQ (F%d, F%d), %d(%v)", a, b, at, p) }

// run32 returns n consecutive registers.
func run32(first vec, n int) []vec {
	v := make([]vec, n)
	for i := range v {
		v[i] = first + vec(i)
	}
	return v
}

// has reports whether the level has a feature.
func (a *assembly) has(f feature) bool { return slices.Contains(a.features, f) }

// sequence returns the offset of consecutive constants in the file's table.
func (a *assembly) sequence(bits ...uint32) int {
	for at := range a.consts {
		if rest := a.consts[at:]; len(rest) >= len(bits) && slices.Equal(rest[:len(bits)], bits) {
			return 4 * at
		}
	}
	a.consts = append(a.consts, bits...)
	return 4 * (len(a.consts) - len(bits))
}

// st1Step stores up to four consecutive registers and advances the pointer by step.
func (k *kernel) st1Step(v []vec, p, step reg) { k.op("VST1.P %s, (%v)(%v)", list(v, "S4"), p, step) }
