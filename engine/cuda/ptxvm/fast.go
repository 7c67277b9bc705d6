package ptxvm

import "github.com/coppice-llm/coppice/internal/f32"

// row holds one register of all lanes.
type row = [lanes]uint64

// fast has loops for the most frequent instructions, used when all lanes of a warp run, and for comparisons: they avoid
// a call per lane. Tests compare them with the functions for one lane in arith.go.
var fast = map[string]func(w *warp, in *instr, mask uint32){
	"add.s32": wholeBinary(func(d, a, b *row) {
		for l := range d {
			d[l] = uint64(uint32(a[l]) + uint32(b[l]))
		}
	}),
	"sub.s32": wholeBinary(func(d, a, b *row) {
		for l := range d {
			d[l] = uint64(uint32(a[l]) - uint32(b[l]))
		}
	}),
	"add.s64": wholeBinary(func(d, a, b *row) {
		for l := range d {
			d[l] = a[l] + b[l]
		}
	}),
	"and.b32": wholeBinary(func(d, a, b *row) {
		for l := range d {
			d[l] = uint64(uint32(a[l]) & uint32(b[l]))
		}
	}),
	"shl.b32": wholeBinary(func(d, a, b *row) {
		for l := range d {
			d[l] = uint64(uint32(a[l]) << uint32(b[l]))
		}
	}),
	"shl.b64": wholeBinary(func(d, a, b *row) {
		for l := range d {
			d[l] = a[l] << uint32(b[l])
		}
	}),
	"shr.u32": wholeBinary(func(d, a, b *row) {
		for l := range d {
			d[l] = uint64(uint32(a[l]) >> uint32(b[l]))
		}
	}),
	"shr.s32": wholeBinary(func(d, a, b *row) {
		for l := range d {
			d[l] = uint64(uint32(int32(a[l]) >> uint32(b[l])))
		}
	}),
	"or.b32": wholeBinary(func(d, a, b *row) {
		for l := range d {
			d[l] = uint64(uint32(a[l]) | uint32(b[l]))
		}
	}),
	"mul.lo.s64": wholeBinary(func(d, a, b *row) {
		for l := range d {
			d[l] = a[l] * b[l]
		}
	}),
	"mul.wide.s32": wholeBinary(func(d, a, b *row) {
		for l := range d {
			d[l] = uint64(int64(int32(a[l])) * int64(int32(b[l])))
		}
	}),
	"sub.rn.f32": wholeBinary(func(d, a, b *row) {
		for l := range d {
			d[l] = bits32(f(a[l]) - f(b[l]))
		}
	}),
	"add.rn.f32": wholeBinary(func(d, a, b *row) {
		for l := range d {
			d[l] = bits32(f(a[l]) + f(b[l]))
		}
	}),
	"mul.rn.f32": wholeBinary(func(d, a, b *row) {
		for l := range d {
			d[l] = bits32(f(a[l]) * f(b[l]))
		}
	}),
	"cvt.s64.s32": wholeUnary(func(d, a *row) {
		for l := range d {
			d[l] = uint64(int64(int32(a[l])))
		}
	}),
	"mov.b32": wholeLow32, "mov.u32": wholeLow32, "mov.f32": wholeLow32, "cvt.u64.u32": wholeLow32, "cvt.u32.u64": wholeLow32,
	"mov.u64": wholeMove64, "mov.b64": wholeMove64, "cvta.to.global.u64": wholeMove64,
	"fma.rn.f32": fastFMA,

	"setp.eq.s32": wholeCompare(func(a, b *row) (v uint32) {
		for l := range a {
			v |= bit(uint32(a[l]) == uint32(b[l])) << l
		}
		return v
	}),
	"setp.ne.s32": wholeCompare(func(a, b *row) (v uint32) {
		for l := range a {
			v |= bit(uint32(a[l]) != uint32(b[l])) << l
		}
		return v
	}),
	"setp.lt.s32": wholeCompare(func(a, b *row) (v uint32) {
		for l := range a {
			v |= bit(int32(a[l]) < int32(b[l])) << l
		}
		return v
	}),
	"setp.gt.s32": wholeCompare(func(a, b *row) (v uint32) {
		for l := range a {
			v |= bit(int32(a[l]) > int32(b[l])) << l
		}
		return v
	}),
	"setp.ge.s32": wholeCompare(func(a, b *row) (v uint32) {
		for l := range a {
			v |= bit(int32(a[l]) >= int32(b[l])) << l
		}
		return v
	}),
	"setp.lt.u32": wholeCompare(func(a, b *row) (v uint32) {
		for l := range a {
			v |= bit(uint32(a[l]) < uint32(b[l])) << l
		}
		return v
	}),
	"setp.eq.f32": wholeCompare(func(a, b *row) (v uint32) {
		for l := range a {
			v |= bit(f(a[l]) == f(b[l])) << l
		}
		return v
	}),
	"setp.lt.f32": wholeCompare(func(a, b *row) (v uint32) {
		for l := range a {
			v |= bit(f(a[l]) < f(b[l])) << l
		}
		return v
	}),
	"setp.gt.f32": wholeCompare(func(a, b *row) (v uint32) {
		for l := range a {
			v |= bit(f(a[l]) > f(b[l])) << l
		}
		return v
	}),
	"selp.f32": fastSelect, "selp.b32": fastSelect,
}

var (
	wholeLow32 = wholeUnary(func(d, a *row) {
		for l := range d {
			d[l] = uint64(uint32(a[l]))
		}
	})
	wholeMove64 = wholeUnary(func(d, a *row) { *d = *a })
)

func wholeUnary(loop func(d, a *row)) func(*warp, *instr, uint32) {
	return func(w *warp, in *instr, mask uint32) {
		if mask != full {
			runUnary(w, in, mask)
			return
		}
		loop(&w.r[in.d], &w.r[in.a])
	}
}

func wholeBinary(loop func(d, a, b *row)) func(*warp, *instr, uint32) {
	return func(w *warp, in *instr, mask uint32) {
		if mask != full {
			runBinary(w, in, mask)
			return
		}
		loop(&w.r[in.d], &w.r[in.a], &w.r[in.b])
	}
}

// wholeCompare compares all lanes, and keeps the results of those in the mask.
func wholeCompare(loop func(a, b *row) uint32) func(*warp, *instr, uint32) {
	return func(w *warp, in *instr, mask uint32) {
		w.setPredicate(in.d, loop(&w.r[in.a], &w.r[in.b]), mask)
	}
}

func bit(c bool) (v uint32) {
	if c {
		v = 1
	}
	return v
}

func fastSelect(w *warp, in *instr, mask uint32) {
	if mask != full {
		runSelect(w, in, mask)
		return
	}
	d, a, b, p := &w.r[in.d], &w.r[in.a], &w.r[in.b], w.p[in.c]
	for l := range d {
		v := b[l]
		if p>>l&1 != 0 {
			v = a[l]
		}
		d[l] = v
	}
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
