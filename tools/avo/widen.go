package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
)

// widenF16 generates the widening of f16. It needs F16C, which every processor with AVX2 has.
func (t *target) widenF16() {
	t.text("widenF16", "(dst *float32, src *uint16, n int)", "widens n binary16 values; n is a positive multiple of 16.")
	t.widen16(func(src Mem) Op {
		v := t.vector()
		VCVTPH2PS(src, v)
		return v
	})
}

// narrowF16 generates the rounding to f16, ties to even.
func (t *target) narrowF16() {
	t.text("narrowF16", "(dst *uint16, src *float32, n int)", "rounds n values to binary16; n is a positive multiple of 16.")
	dst, src, n := Load(Param("dst"), GP64()), Load(Param("src"), GP64()), Load(Param("n"), GP64())
	loop("step", n, 16, func() {
		for i := range 16 / t.lanes {
			v := t.vector()
			VMOVUPS(Mem{Base: src, Disp: i * t.bytes()}, v)
			VCVTPS2PH(U8(0), v, Mem{Base: dst, Disp: i * t.bytes() / 2})
		}
		ADDQ(I32(64), src)
		ADDQ(I32(32), dst)
	})
	end()
}

func (t *target) widenBF16() {
	t.text("widenBF16", "(dst *float32, src *uint16, n int)", "widens n bfloat16 values; n is a positive multiple of 16.")
	t.widen16(func(src Mem) Op {
		v := t.vector()
		VPMOVZXWD(src, v)
		VPSLLD(U8(16), v, v)
		return v
	})
}

// widen16 generates a loop of widen over vectors of 16-bit values.
func (t *target) widen16(widen func(src Mem) Op) {
	dst, src, n := Load(Param("dst"), GP64()), Load(Param("src"), GP64()), Load(Param("n"), GP64())
	loop("step", n, 16, func() {
		for i := range 16 / t.lanes {
			VMOVUPS(widen(Mem{Base: src, Disp: i * t.bytes() / 2}), Mem{Base: dst, Disp: i * t.bytes()})
		}
		ADDQ(I32(32), src)
		ADDQ(I32(64), dst)
	})
	end()
}

// widenQ8 generates the widening of Q8_0 rows: dim bytes followed by the scales of the row's blocks.
func (t *target) widenQ8() {
	t.text("widenQ8", "(dst *float32, src *byte, rows, dim int)",
		"widens rows of dim signed bytes times the f16 scales of their blocks of 32, which follow the row; rows is positive, dim a positive multiple of 32.")
	dst, src, rows := Load(Param("dst"), GP64()), Load(Param("src"), GP64()), Load(Param("rows"), GP64())
	scales, left := GP64(), GP64()
	loop("row", rows, 1, func() {
		MOVQ(src, scales)
		ADDQ(t.param("dim"), scales)
		MOVQ(t.param("dim"), left)
		loop("block", left, 32, func() {
			scale, one, bits := t.vector(), XMM(), GP32()
			MOVWLZX(Mem{Base: scales}, bits)
			VMOVD(bits, one)
			VCVTPH2PS(one, one)
			VBROADCASTSS(one, scale)
			for i := range 32 / t.lanes {
				v := t.vector()
				VPMOVSXBD(Mem{Base: src, Disp: i * t.lanes}, v)
				VCVTDQ2PS(v, v)
				VMULPS(scale, v, v)
				VMOVUPS(v, Mem{Base: dst, Disp: i * t.bytes()})
			}
			ADDQ(I32(32), src)
			ADDQ(I32(128), dst)
			ADDQ(I32(2), scales)
		})
		MOVQ(scales, src)
	})
	end()
}
