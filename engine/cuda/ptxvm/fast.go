package ptxvm

import "github.com/coppice-llm/coppice/internal/f32"

// fast are the loops of the commonest instructions, for warps with all lanes: what
// arith.go has for one lane, which is their oracle, without a call a lane.
var fast = map[string]func(w *warp, in *instr, mask uint32){
	"add.s32":      fastAddS32,
	"sub.s32":      fastSubS32,
	"add.s64":      fastAddS64,
	"and.b32":      fastAndB32,
	"or.b32":       fastOrB32,
	"shl.b32":      fastShlB32,
	"shl.b64":      fastShlB64,
	"shr.u32":      fastShrU32,
	"mul.lo.s32":   fastMulLoS32,
	"mul.lo.s64":   fastMulLoS64,
	"mul.wide.s32": fastMulWideS32,
	"add.rn.f32":   fastAddRnF32,
	"sub.rn.f32":   fastSubRnF32,
	"mul.rn.f32":   fastMulRnF32,
	"cvt.s64.s32":  fastCvtS64S32,
	"mov.b32":      fastLow32,
	"mov.u32":      fastLow32,
	"mov.f32":      fastLow32,
	"cvt.u64.u32":  fastLow32,
	"cvt.u32.u64":  fastLow32,
	"mov.u64":      fastMove64, "mov.b64": fastMove64, "cvta.to.global.u64": fastMove64,
	"fma.rn.f32": fastFMA,
}

func fastAddS32(w *warp, in *instr, mask uint32) {
	if mask != full {
		runBinary(w, in, mask)
		return
	}
	d, a, b := &w.r[in.d], &w.r[in.a], &w.r[in.b]
	for l := range d {
		d[l] = uint64(uint32(a[l]) + uint32(b[l]))
	}
}

func fastSubS32(w *warp, in *instr, mask uint32) {
	if mask != full {
		runBinary(w, in, mask)
		return
	}
	d, a, b := &w.r[in.d], &w.r[in.a], &w.r[in.b]
	for l := range d {
		d[l] = uint64(uint32(a[l]) - uint32(b[l]))
	}
}

func fastAddS64(w *warp, in *instr, mask uint32) {
	if mask != full {
		runBinary(w, in, mask)
		return
	}
	d, a, b := &w.r[in.d], &w.r[in.a], &w.r[in.b]
	for l := range d {
		d[l] = a[l] + b[l]
	}
}

func fastAndB32(w *warp, in *instr, mask uint32) {
	if mask != full {
		runBinary(w, in, mask)
		return
	}
	d, a, b := &w.r[in.d], &w.r[in.a], &w.r[in.b]
	for l := range d {
		d[l] = uint64(uint32(a[l]) & uint32(b[l]))
	}
}

func fastOrB32(w *warp, in *instr, mask uint32) {
	if mask != full {
		runBinary(w, in, mask)
		return
	}
	d, a, b := &w.r[in.d], &w.r[in.a], &w.r[in.b]
	for l := range d {
		d[l] = uint64(uint32(a[l]) | uint32(b[l]))
	}
}

func fastShlB32(w *warp, in *instr, mask uint32) {
	if mask != full {
		runBinary(w, in, mask)
		return
	}
	d, a, b := &w.r[in.d], &w.r[in.a], &w.r[in.b]
	for l := range d {
		d[l] = uint64(uint32(a[l]) << uint32(b[l]))
	}
}

func fastShlB64(w *warp, in *instr, mask uint32) {
	if mask != full {
		runBinary(w, in, mask)
		return
	}
	d, a, b := &w.r[in.d], &w.r[in.a], &w.r[in.b]
	for l := range d {
		d[l] = a[l] << uint32(b[l])
	}
}

func fastShrU32(w *warp, in *instr, mask uint32) {
	if mask != full {
		runBinary(w, in, mask)
		return
	}
	d, a, b := &w.r[in.d], &w.r[in.a], &w.r[in.b]
	for l := range d {
		d[l] = uint64(uint32(a[l]) >> uint32(b[l]))
	}
}

func fastMulLoS32(w *warp, in *instr, mask uint32) {
	if mask != full {
		runBinary(w, in, mask)
		return
	}
	d, a, b := &w.r[in.d], &w.r[in.a], &w.r[in.b]
	for l := range d {
		d[l] = uint64(uint32(a[l]) * uint32(b[l]))
	}
}

func fastMulLoS64(w *warp, in *instr, mask uint32) {
	if mask != full {
		runBinary(w, in, mask)
		return
	}
	d, a, b := &w.r[in.d], &w.r[in.a], &w.r[in.b]
	for l := range d {
		d[l] = a[l] * b[l]
	}
}

func fastMulWideS32(w *warp, in *instr, mask uint32) {
	if mask != full {
		runBinary(w, in, mask)
		return
	}
	d, a, b := &w.r[in.d], &w.r[in.a], &w.r[in.b]
	for l := range d {
		d[l] = uint64(int64(int32(a[l])) * int64(int32(b[l])))
	}
}

func fastAddRnF32(w *warp, in *instr, mask uint32) {
	if mask != full {
		runBinary(w, in, mask)
		return
	}
	d, a, b := &w.r[in.d], &w.r[in.a], &w.r[in.b]
	for l := range d {
		d[l] = bits32(f(a[l]) + f(b[l]))
	}
}

func fastSubRnF32(w *warp, in *instr, mask uint32) {
	if mask != full {
		runBinary(w, in, mask)
		return
	}
	d, a, b := &w.r[in.d], &w.r[in.a], &w.r[in.b]
	for l := range d {
		d[l] = bits32(f(a[l]) - f(b[l]))
	}
}

func fastMulRnF32(w *warp, in *instr, mask uint32) {
	if mask != full {
		runBinary(w, in, mask)
		return
	}
	d, a, b := &w.r[in.d], &w.r[in.a], &w.r[in.b]
	for l := range d {
		d[l] = bits32(f(a[l]) * f(b[l]))
	}
}

func fastCvtS64S32(w *warp, in *instr, mask uint32) {
	if mask != full {
		runUnary(w, in, mask)
		return
	}
	d, a := &w.r[in.d], &w.r[in.a]
	for l := range d {
		d[l] = uint64(int64(int32(a[l])))
	}
}

func fastLow32(w *warp, in *instr, mask uint32) {
	if mask != full {
		runUnary(w, in, mask)
		return
	}
	d, a := &w.r[in.d], &w.r[in.a]
	for l := range d {
		d[l] = uint64(uint32(a[l]))
	}
}

func fastMove64(w *warp, in *instr, mask uint32) {
	if mask != full {
		runUnary(w, in, mask)
		return
	}
	w.r[in.d] = w.r[in.a]
}

func fastFMA(w *warp, in *instr, mask uint32) {
	if mask != full {
		runTernary(w, in, mask)
		return
	}
	d, a, b, c := &w.r[in.d], &w.r[in.a], &w.r[in.b], &w.r[in.c]
	for l := range d {
		r, ok := f32.TryFMA(f(a[l]), f(b[l]), f(c[l]))
		if !ok {
			r = f32.FMA32(f(a[l]), f(b[l]), f(c[l]))
		}
		d[l] = bits32(r)
	}
}
