package main

import (
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// Predicates of VCMPPS: ordered, quiet.
const (
	lessThan    = U8(0x11)
	greaterThan = U8(0x1e)
)

// exp generates the replacement of x by Exp32(x), step by step as in internal/f32.
func (t *target) exp(x reg.VecVirtual) {
	n, f, y, i := t.vector(), t.vector(), t.vector(), t.vector()
	VMULPS(t.constant("log2e"), x, n)
	VADDPS(t.constant("round"), n, n)
	VSUBPS(t.constant("round"), n, n)
	VMOVAPS(x, f)
	VFMADD231PS(t.constant("-ln2Hi"), n, f)
	VFMADD231PS(t.constant("-ln2Lo"), n, f)
	VMOVUPS(t.constant("1/720"), y)
	for _, c := range []string{"1/120", "1/24", "1/6", "1/2", "1", "1"} {
		VFMADD213PS(t.constant(c), f, y)
	}
	// Multiply by 2^(n-1) and then by 2; for n = -126 only by 2^-126.
	scale := t.vector()
	VCVTPS2DQ(n, i)
	VPADDD(t.constant("int 126"), i, i)
	VPMAXSD(t.constant("int 1"), i, scale)
	VPSLLD(U8(23), scale, scale)
	VMULPS(scale, y, y)
	if t.wide() {
		again, low, high := K(), K(), K()
		VPTESTMD(i, i, again)
		VADDPS(y, y, again, y)
		VCMPPS(lessThan, t.constant("lowest"), x, low)
		VCMPPS(greaterThan, t.constant("highest"), x, high)
		t.zero(n)
		VMOVAPS(n, low, y)
		VMOVUPS(t.constant("inf"), high, y)
		VMOVAPS(y, x)
		return
	}
	mask := t.vector()
	t.zero(mask)
	VPCMPEQD(mask, i, mask)
	VANDNPS(y, mask, mask)
	VADDPS(mask, y, y)
	VCMPPS(lessThan, t.constant("lowest"), x, mask)
	VANDNPS(y, mask, y)
	VCMPPS(greaterThan, t.constant("highest"), x, mask)
	VBLENDVPS(mask, t.constant("inf"), y, x)
}

// softmax generates the conversion of scores to weights: Exp32(score - largest score).
func (t *target) softmax() {
	t.text("softmax", "(s *float32, n int, sum *float32)",
		"replaces s by e^(s-max) and writes the 16 lanes of their sum; n is a positive multiple of 16, unused places are -Inf.")
	s, n := Load(Param("s"), GP64()), Load(Param("n"), GP64())
	parts := 16 / t.lanes
	top, cur, left := t.vector(), GP64(), GP64()
	VMOVUPS(t.constant("-inf"), top)
	MOVQ(s, cur)
	MOVQ(n, left)
	t.sixteens("largest", left, func(_, disp int) {
		x := t.vector()
		VMOVUPS(Mem{Base: cur, Disp: disp}, x)
		VMAXPS(top, x, top) // keeps top where x is NaN
	}, cur)
	VBROADCASTSS(t.reduce(top, VMAXPS, VMAXSS), top) // no lane is NaN
	sums := t.vectors(parts)
	for _, v := range sums {
		t.zero(v)
	}
	t.sixteens("weights", n, func(i, disp int) {
		x := t.vector()
		VMOVUPS(Mem{Base: s, Disp: disp}, x)
		VSUBPS(top, x, x)
		t.exp(x)
		VMOVUPS(x, Mem{Base: s, Disp: disp})
		VADDPS(x, sums[i], sums[i])
	}, s)
	sum := Load(Param("sum"), GP64())
	for i, v := range sums {
		VMOVUPS(v, Mem{Base: sum, Disp: i * t.bytes()})
	}
	end()
}

// squares generates the first half of an RMSNorm, the sum of squares in lanes.
func (t *target) squares() {
	t.text("squares", "(x *float32, n int, sum *float32)",
		"writes the 16 lanes of Σx²; n is a positive multiple of 16.")
	x, n, sum := Load(Param("x"), GP64()), Load(Param("n"), GP64()), Load(Param("sum"), GP64())
	acc := t.vectors(16 / t.lanes)
	for _, v := range acc {
		t.zero(v)
	}
	t.sixteens("step", n, func(i, disp int) {
		c := t.vector()
		VMOVUPS(Mem{Base: x, Disp: disp}, c)
		VFMADD231PS(c, c, acc[i])
	}, x)
	for i, v := range acc {
		VMOVUPS(v, Mem{Base: sum, Disp: i * t.bytes()})
	}
	end()
}

// scale generates the second half of an RMSNorm, two products per element.
func (t *target) scale() {
	t.text("scale", "(dst, x, w *float32, r float32, n int)",
		"writes (x·r)·w; n is a positive multiple of 16.")
	dst, x, w := Load(Param("dst"), GP64()), Load(Param("x"), GP64()), Load(Param("w"), GP64())
	n, r := Load(Param("n"), GP64()), t.vector()
	VBROADCASTSS(t.param("r"), r)
	t.sixteens("step", n, func(_, disp int) {
		v := t.vector()
		VMULPS(Mem{Base: x, Disp: disp}, r, v)
		VMULPS(Mem{Base: w, Disp: disp}, v, v)
		VMOVUPS(v, Mem{Base: dst, Disp: disp})
	}, dst, x, w)
	end()
}

// silu generates SiLUMul of internal/f32.
func (t *target) silu() {
	t.text("silu", "(dst, gate, up *float32, n int)",
		"writes (gate/(1+e^-gate))·up; n is a positive multiple of 16.")
	dst, g, u := Load(Param("dst"), GP64()), Load(Param("gate"), GP64()), Load(Param("up"), GP64())
	n := Load(Param("n"), GP64())
	t.sixteens("step", n, func(_, disp int) {
		t.siluMul(Mem{Base: g, Disp: disp}, Mem{Base: u, Disp: disp}, Mem{Base: dst, Disp: disp})
	}, dst, g, u)
	end()
}

// siluMul generates SiLUMul of one vector.
func (t *target) siluMul(gate, up, dst Mem) {
	x, e := t.vector(), t.vector()
	VMOVUPS(gate, x)
	t.xor(t.constant("sign"), x, e)
	t.exp(e)
	VADDPS(t.constant("1"), e, e)
	VDIVPS(e, x, x)
	VMULPS(up, x, x)
	VMOVUPS(x, dst)
}

// add generates the sum of two rows.
func (t *target) add() {
	t.text("add", "(dst, x *float32, n int)", "adds x to dst; n is a positive multiple of 16.")
	dst, x, n := Load(Param("dst"), GP64()), Load(Param("x"), GP64()), Load(Param("n"), GP64())
	t.sixteens("step", n, func(_, disp int) {
		v := t.vector()
		VMOVUPS(Mem{Base: dst, Disp: disp}, v)
		VADDPS(Mem{Base: x, Disp: disp}, v, v)
		VMOVUPS(v, Mem{Base: dst, Disp: disp})
	}, dst, x)
	end()
}

// rotate generates the rotary embedding of one head, without fused multiply-adds.
func (t *target) rotate() {
	t.text("rotate", "(x, cos, sin *float32, half int)", "replaces x[i], x[half+i] by their rotation; half is a positive multiple of 8.")
	x, cos, sin, half := Load(Param("x"), GP64()), Load(Param("cos"), GP64()), Load(Param("sin"), GP64()), Load(Param("half"), GP64())
	upper := GP64()
	LEAQ(Mem{Base: x, Index: half, Scale: 4}, upper)
	loop("step", half, 8, func() {
		a, b, c, s, as, bs := t.vector(), t.vector(), t.vector(), t.vector(), t.vector(), t.vector()
		VMOVUPS(Mem{Base: x}, a)
		VMOVUPS(Mem{Base: upper}, b)
		VMOVUPS(Mem{Base: cos}, c)
		VMOVUPS(Mem{Base: sin}, s)
		VMULPS(s, a, as)
		VMULPS(s, b, bs)
		VMULPS(c, a, a)
		VMULPS(c, b, b)
		VSUBPS(bs, a, a)
		VADDPS(as, b, b)
		VMOVUPS(a, Mem{Base: x})
		VMOVUPS(b, Mem{Base: upper})
		advance(32, x, upper, cos, sin)
	})
	end()
}

// quantize generates the writing of records for blocks of 32 activations, see quantgemm.go in
// engine/cpu. Steps that run only once per block, such as the last reductions, use half a vector.
func (t *target) quantize() {
	t.text("quantize", "(dst *byte, x *float32, blocks int)", "writes the records of the blocks, at least one.")
	dst, x, blocks := Load(Param("dst"), GP64()), Load(Param("x"), GP64()), Load(Param("blocks"), GP64())
	Label("block")
	v, abs := t.vectors(4), t.vectors(4)
	for i := range v {
		VMOVUPS(Mem{Base: x, Disp: i * t.bytes()}, v[i])
		VPAND(t.constant("magnitude"), v[i], abs[i])
	}
	// The bits of magnitudes have the order of integers.
	VPMAXSD(abs[1], abs[0], abs[0])
	VPMAXSD(abs[3], abs[2], abs[2])
	VPMAXSD(abs[2], abs[0], abs[0])
	most, other := abs[0].AsX(), XMM()
	VEXTRACTI128(U8(1), abs[0], other)
	VPMAXSD(other, most, most)
	VPSHUFD(U8(0x4e), most, other)
	VPMAXSD(other, most, most)
	VPSHUFD(U8(0xb1), most, other)
	VPMAXSD(other, most, most)
	bits := GP32()
	VMOVD(most, bits)
	CMPL(bits, U32(0x7f800000))
	JAE(LabelRef("notFinite"))
	VDIVSS(t.constant("127"), most, most)
	VMOVD(most, bits)
	CMPL(bits, U32(math.Float32bits(0x1p-120)))
	JB(LabelRef("nothing"))
	one, inverse := XMM(), t.vector()
	VMOVSS(t.constant("1"), one)
	VDIVSS(most, one, one)
	VBROADCASTSS(one, inverse)
	for _, q := range v {
		VMULPS(inverse, q, q)
		VCVTPS2DQ(q, q) // to even
		VPMINSD(t.constant("int 127"), q, q)
		VPMAXSD(t.constant("int -127"), q, q)
	}
	VPACKSSDW(v[1], v[0], v[0]) // within lanes of 128 bits: 0 2 1 3, of 4 values each
	VPACKSSDW(v[3], v[2], v[2])
	VPACKSSWB(v[2], v[0], v[0]) // 0 2 4 6 1 3 5 7
	order := t.vector()
	VMOVDQU(t.constant("unpacked"), order)
	VPERMD(v[0], order, v[0])
	VMOVDQU(v[0], Mem{Base: dst})
	// Sums of unsigned bytes, to each of which 128 was added.
	zero := t.vector()
	t.zero(zero)
	VPXOR(t.constant("byte signs"), v[0], v[0])
	VPSADBW(zero, v[0], v[0])
	low, high := v[0].AsX(), XMM()
	VEXTRACTI128(U8(1), v[0], high)
	VPADDD(low, high, high)
	half, sum := GP32(), GP32()
	for _, s := range []struct {
		lanes reg.Register
		added int
		to    reg.GPVirtual
		at    int
	}{{low, 16 * 128, half, recordHalf}, {high, 32 * 128, sum, recordSum}} {
		VPSHUFD(U8(0x4e), s.lanes, other)
		VPADDD(s.lanes, other, other)
		VMOVD(other, s.to)
		SUBL(U32(uint32(s.added)), s.to)
		MOVL(s.to, Mem{Base: dst, Disp: s.at})
	}
	VMOVSS(most, Mem{Base: dst, Disp: recordD})
	VXORPS(other, other, other)
	VCVTSI2SSL(sum, other, other)
	VMULSS(most, other, other)
	VMOVSS(other, Mem{Base: dst, Disp: recordMin})
	Label("next")
	ADDQ(I32(128), x)
	ADDQ(I32(recordSize), dst)
	DECQ(blocks)
	JNZ(LabelRef("block"))
	end()
	Label("notFinite")
	MOVL(U32(math.Float32bits(float32(math.NaN()))), bits)
	JMP(LabelRef("blank"))
	Label("nothing")
	XORL(bits, bits)
	Label("blank")
	none := t.vector()
	t.zero(none)
	VMOVDQU(none, Mem{Base: dst})
	VMOVDQU(none.AsX(), Mem{Base: dst, Disp: recordD})
	MOVL(bits, Mem{Base: dst, Disp: recordD})
	MOVL(bits, Mem{Base: dst, Disp: recordMin})
	JMP(LabelRef("next"))
}

// siluPairs generates silu for rows of a panel with 32 columns of gate followed by 32 of up.
func (t *target) siluPairs() {
	t.text("siluPairs", "(dst *float32, dstStride int, tile *float32, rows int)",
		"writes (gate/(1+e^-gate))·up, 32 a row; tile is [rows][32 of gate, 32 of up], dstStride is in bytes. dst may be the tile.")
	dst, stride, tile, rows := Load(Param("dst"), GP64()), Load(Param("dstStride"), GP64()), Load(Param("tile"), GP64()), Load(Param("rows"), GP64())
	loop("row", rows, 1, func() {
		for i := range 32 / t.lanes {
			gate := Mem{Base: tile, Disp: i * t.bytes()}
			t.siluMul(gate, gate.Offset(128), Mem{Base: dst, Disp: i * t.bytes()})
		}
		ADDQ(stride, dst)
		ADDQ(I32(256), tile)
	})
	end()
}

// fetch generates prefetches of memory that will be read soon.
func (t *target) fetch() {
	t.text("fetch", "(p *byte, n int)", "fetches n bytes into the first-level cache; n is a positive multiple of 64.")
	p, n := Load(Param("p"), GP64()), Load(Param("n"), GP64())
	loop("step", n, 64, func() {
		PREFETCHT0(Mem{Base: p})
		ADDQ(I32(64), p)
	})
	RET()
}

// ahead is how many bytes ahead a stream prefetches.
const ahead = 2048

// stream generates a loop that reads memory with next to no arithmetic, to measure its bandwidth.
func (t *target) stream() {
	t.text("stream", "(p *uint32, n int) (sum uint32)",
		"adds n words in some order: as fast as one core reads memory; n is a positive multiple of 256.")
	p, n := Load(Param("p"), GP64()), Load(Param("n"), GP64())
	acc := t.vectors(4)
	for _, v := range acc {
		t.zero(v)
	}
	loop("step", n, 256, func() {
		for i := range 256 / t.lanes {
			VPADDD(Mem{Base: p, Disp: i * t.bytes()}, acc[i%4], acc[i%4])
		}
		for line := 0; line < 1024; line += 64 {
			PREFETCHT0(Mem{Base: p, Disp: ahead + line})
		}
		ADDQ(I32(1024), p)
	})
	for _, v := range acc[1:] {
		VPADDD(v, acc[0], acc[0])
	}
	sum := GP32()
	VMOVD(acc[0].AsX(), sum)
	Store(sum, ReturnIndex(0))
	end()
}
