package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// scores generates the computation of scale·(q_g · k_p) for the positions p of one page and each
// query head g. The elements of a vector are elements of the head; they are added in the order of
// Tree16.
func (t *target) scores() {
	t.text("scores", "(dst *float32, dstStride int, q, k *float32, n, dim, group int, scale float32)",
		"writes scale·(q_g·k_p) to dst[g][p]; q is [group][dim], k is [n][dim], dstStride is in bytes.")
	k, n := Load(Param("k"), GP64()), Load(Param("n"), GP64())
	dst := Load(Param("dst"), GP64())
	stride := Load(Param("dim"), GP64())
	SHLQ(U8(2), stride)
	block := 4
	if t.wide() {
		block = 16
	}
	Label("blocks")
	CMPQ(n, I32(block))
	JL(LabelRef("singles"))
	t.eachHead("block", dst, func(q, at reg.Register) { t.scoreBlock(at, q, k, stride) })
	for range block / 4 { // k += block·stride
		LEAQ(Mem{Base: k, Index: stride, Scale: 4}, k)
	}
	ADDQ(I32(4*block), dst)
	SUBQ(I32(block), n)
	JMP(LabelRef("blocks"))
	Label("singles")
	TESTQ(n, n)
	JZ(LabelRef("done"))
	t.eachHead("single", dst, func(q, at reg.Register) { t.scoreOne(at, q, k) })
	ADDQ(stride, k)
	ADDQ(I32(4), dst)
	DECQ(n)
	JMP(LabelRef("singles"))
	Label("done")
	end()
}

// eachHead generates a loop over the query heads whose body do generates. do must advance q to the
// next head.
func (t *target) eachHead(label string, dst reg.Register, do func(q, at reg.Register)) {
	q, at, heads := Load(Param("q"), GP64()), GP64(), Load(Param("group"), GP64())
	MOVQ(dst, at)
	loop(label+"Head", heads, 1, func() {
		do(q, at)
		ADDQ(t.param("dstStride"), at)
	})
}

// scoreBlock generates the scores of one block of positions: as many positions as fill one vector
// (AVX-512) or half of one.
func (t *target) scoreBlock(at, q, k, stride reg.Register) {
	cur, chunks := GP64(), Load(Param("dim"), GP64())
	SHRQ(U8(4), chunks)
	MOVQ(k, cur)
	if t.wide() {
		t.scoreSixteen(at, q, cur, chunks, stride)
		return
	}
	s3 := GP64()
	LEAQ(Mem{Base: stride, Index: stride, Scale: 2}, s3)
	address := []Mem{{Base: cur}, {Base: cur, Index: stride, Scale: 1}, {Base: cur, Index: stride, Scale: 2}, {Base: cur, Index: s3, Scale: 1}}
	acc, x := t.vectors(8), t.vectors(2)
	for i := range x {
		VMOVUPS(Mem{Base: q, Disp: 32 * i}, x[i])
	}
	for p, m := range address {
		VMULPS(m, x[0], acc[2*p])
		VMULPS(m.Offset(32), x[1], acc[2*p+1])
	}
	Label("blockChunk")
	ADDQ(I32(64), q)
	ADDQ(I32(64), cur)
	DECQ(chunks)
	JZ(LabelRef("blockTree"))
	for i := range x {
		VMOVUPS(Mem{Base: q, Disp: 32 * i}, x[i])
	}
	for p, m := range address {
		VFMADD231PS(m, x[0], acc[2*p])
		VFMADD231PS(m.Offset(32), x[1], acc[2*p+1])
	}
	JMP(LabelRef("blockChunk"))
	Label("blockTree")
	for p := range 4 { // v[i] + v[i+8]
		VADDPS(acc[2*p+1], acc[2*p], acc[2*p])
	}
	quad := func(a, b reg.VecVirtual) reg.VecVirtual { // + v[i+4]
		lo, hi := t.vector(), t.vector()
		VPERM2F128(U8(0x20), b, a, lo)
		VPERM2F128(U8(0x31), b, a, hi)
		VADDPS(hi, lo, lo)
		return lo
	}
	v := t.pairTree(quad(acc[0], acc[2]), quad(acc[4], acc[6])) // + v[i+2]
	v = t.singleTree(v, v)                                      // (0,2,0,2 | 1,3,1,3)
	upper := XMM()
	VEXTRACTF128(U8(1), v, upper)
	VUNPCKLPS(upper, v.AsX(), upper)
	s := XMM()
	VBROADCASTSS(t.param("scale"), s)
	VMULPS(s, upper, upper)
	VMOVUPS(upper, Mem{Base: at})
}

func (t *target) param(name string) Mem {
	b, err := Param(name).Resolve()
	if err != nil {
		panic(err)
	}
	return b.Addr
}

// scoreSixteen generates the scores of sixteen positions with one accumulator each, and adds the
// elements of each accumulator by transposing. The order of the accumulators is chosen so that the
// results are ascending.
func (t *target) scoreSixteen(at, q, cur, chunks, stride reg.Register) {
	s3, s5, s7, eighth := GP64(), GP64(), GP64(), GP64()
	LEAQ(Mem{Base: stride, Index: stride, Scale: 2}, s3)
	LEAQ(Mem{Base: stride, Index: stride, Scale: 4}, s5)
	LEAQ(Mem{Base: s3, Index: stride, Scale: 4}, s7)
	LEAQ(Mem{Base: cur, Index: stride, Scale: 8}, eighth)
	address := [8]func(base reg.Register) Mem{
		func(b reg.Register) Mem { return Mem{Base: b} },
		func(b reg.Register) Mem { return Mem{Base: b, Index: stride, Scale: 1} },
		func(b reg.Register) Mem { return Mem{Base: b, Index: stride, Scale: 2} },
		func(b reg.Register) Mem { return Mem{Base: b, Index: s3, Scale: 1} },
		func(b reg.Register) Mem { return Mem{Base: b, Index: stride, Scale: 4} },
		func(b reg.Register) Mem { return Mem{Base: b, Index: s5, Scale: 1} },
		func(b reg.Register) Mem { return Mem{Base: b, Index: s3, Scale: 2} },
		func(b reg.Register) Mem { return Mem{Base: b, Index: s7, Scale: 1} },
	}
	of := func(p int) Mem {
		if p < 8 {
			return address[p](cur)
		}
		return address[p-8](eighth)
	}
	acc, x := t.vectors(16), t.vector()
	VMOVUPS(Mem{Base: q}, x)
	for p := range acc {
		VMULPS(of(p), x, acc[p])
	}
	Label("blockChunk")
	ADDQ(I32(64), q)
	ADDQ(I32(64), cur)
	ADDQ(I32(64), eighth)
	DECQ(chunks)
	JZ(LabelRef("blockTree"))
	VMOVUPS(Mem{Base: q}, x)
	for p := range acc {
		VFMADD231PS(of(p), x, acc[p])
	}
	JMP(LabelRef("blockChunk"))
	Label("blockTree")
	var v []reg.VecVirtual
	for c := range 4 {
		for r := range 4 {
			v = append(v, acc[4*r+c])
		}
	}
	v = fold(v, t.laneTree(0x44, 0xee)) // v[i] + v[i+8]
	v = fold(v, t.laneTree(0x88, 0xdd)) // + v[i+4]
	v = fold(v, t.pairTree)             // + v[i+2]
	v = fold(v, t.singleTree)           // + v[i+1]
	s := t.vector()
	VBROADCASTSS(t.param("scale"), s)
	VMULPS(s, v[0], v[0])
	VMOVUPS(v[0], Mem{Base: at})
}

func fold(v []reg.VecVirtual, add func(a, b reg.VecVirtual) reg.VecVirtual) []reg.VecVirtual {
	var out []reg.VecVirtual
	for i := 0; i < len(v); i += 2 {
		out = append(out, add(v[i], v[i+1]))
	}
	return out
}

// laneTree returns a function that generates the addition of 128-bit parts of a and b: those that
// the selection first picks, and those that second picks.
func (t *target) laneTree(first, second uint64) func(a, b reg.VecVirtual) reg.VecVirtual {
	return func(a, b reg.VecVirtual) reg.VecVirtual {
		lo, hi := t.vector(), t.vector()
		VSHUFF32X4(U8(first), b, a, lo)
		VSHUFF32X4(U8(second), b, a, hi)
		VADDPS(hi, lo, lo)
		return lo
	}
}

// pairTree adds the halves of each 128-bit lane.
func (t *target) pairTree(a, b reg.VecVirtual) reg.VecVirtual {
	lo, hi := t.vector(), t.vector()
	VUNPCKLPD(b, a, lo)
	VUNPCKHPD(b, a, hi)
	VADDPS(hi, lo, lo)
	return lo
}

// singleTree adds neighbouring elements.
func (t *target) singleTree(a, b reg.VecVirtual) reg.VecVirtual {
	lo, hi := t.vector(), t.vector()
	VSHUFPS(U8(0x88), b, a, lo)
	VSHUFPS(U8(0xdd), b, a, hi)
	VADDPS(hi, lo, lo)
	return lo
}

// scoreOne generates the score of one position.
func (t *target) scoreOne(at, q, k reg.Register) {
	cur, chunks := GP64(), Load(Param("dim"), GP64())
	SHRQ(U8(4), chunks)
	MOVQ(k, cur)
	acc, x := t.vectors(16/t.lanes), t.vectors(16/t.lanes)
	for i := range acc {
		VMOVUPS(Mem{Base: q, Disp: 32 * i}, x[i])
		VMULPS(Mem{Base: cur, Disp: 32 * i}, x[i], acc[i])
	}
	Label("singleChunk")
	ADDQ(I32(64), q)
	ADDQ(I32(64), cur)
	DECQ(chunks)
	JZ(LabelRef("singleTree"))
	for i := range acc {
		VMOVUPS(Mem{Base: q, Disp: 32 * i}, x[i])
		VFMADD231PS(Mem{Base: cur, Disp: 32 * i}, x[i], acc[i])
	}
	JMP(LabelRef("singleChunk"))
	Label("singleTree")
	if !t.wide() {
		VADDPS(acc[1], acc[0], acc[0])
	}
	four := t.reduce(acc[0], VADDPS, VADDSS)
	VMULSS(t.param("scale"), four, four)
	VMOVSS(four, Mem{Base: at})
}
