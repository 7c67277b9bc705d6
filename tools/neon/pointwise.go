package main

import "math"

// exponent holds the constants of exp.
type exponent struct {
	factors vec   // log2e, -ln2Hi, -ln2Lo, 1/720
	terms   []vec // 1/120, 1/24, 1/6, 1/2, 1
	int126  vec
	lowest  vec
	above   []vec // the highest argument and infinity; nil if no argument is above zero
	scratch []vec // four for each argument
}

// one is 1.
func (e *exponent) one() vec { return e.terms[4] }

// exponent loads the constants of Exp32 in internal/f32, and takes scratch for two arguments at a time.
func (k *kernel) exponent(above bool) *exponent {
	e := &exponent{
		factors: k.four(float(1.44269504), float(-0.693359375), float(2.12194440e-4), float(1.0/720)),
		terms:   k.constants(float(1.0/120), float(1.0/24), float(1.0/6), float(0.5), float(1)),
	}
	e.int126, e.lowest = k.constants(126)[0], k.constants(float(-87))[0]
	if above {
		e.above = k.constants(float(88.72283), float(math.Inf(1)))
	}
	e.scratch = k.vectors(8)
	return e
}

// exp writes the replacement of two vectors by Exp32 of them, step by step as in internal/f32.
func (k *kernel) exp(e *exponent, x []vec) {
	n, f, y, t := e.scratch[0:2], e.scratch[2:4], e.scratch[4:6], e.scratch[6:8]
	each := func(do func(i int)) {
		for i := range x {
			do(i)
		}
	}
	each(func(i int) { k.fmulLane(n[i], x[i], e.factors, 0) })
	each(func(i int) { k.frintn(n[i], n[i]) })
	each(func(i int) { k.mov(f[i], x[i]) })
	each(func(i int) { k.fmlaLane(f[i], n[i], e.factors, 1) })
	each(func(i int) { k.fmlaLane(f[i], n[i], e.factors, 2) })
	each(func(i int) { k.mov(y[i], e.terms[0]) })
	each(func(i int) { k.fmlaLane(y[i], f[i], e.factors, 3) })
	for _, term := range append(e.terms[1:], e.one()) { // Horner's scheme
		each(func(i int) { k.mov(t[i], term) })
		each(func(i int) { k.fmla(t[i], y[i], f[i]) })
		y, t = t, y
	}
	// Multiply by 2^(n-1) and then by 2; for n = -126 only by 2^-126.
	each(func(i int) { k.fcvtzs(n[i], n[i]) })
	each(func(i int) { k.add32(n[i], n[i], e.int126) })
	each(func(i int) { k.isZero(t[i], n[i]) })
	each(func(i int) { k.sub32(n[i], n[i], t[i]) }) // a mask of ones is -1
	each(func(i int) { k.shl32(n[i], n[i], 23) })
	each(func(i int) { k.fmul(y[i], y[i], n[i]) })
	each(func(i int) { k.bic(t[i], y[i], t[i]) })
	each(func(i int) { k.fadd(y[i], y[i], t[i]) })
	each(func(i int) { k.fcmgt(t[i], e.lowest, x[i]) })
	if e.above == nil {
		each(func(i int) { k.bic(x[i], y[i], t[i]) })
		return
	}
	each(func(i int) { k.bic(y[i], y[i], t[i]) })
	each(func(i int) { k.fcmgt(t[i], x[i], e.above[0]) })
	each(func(i int) { k.bit(y[i], e.above[1], t[i]) })
	each(func(i int) { k.mov(x[i], y[i]) })
}

// sixteens writes a loop over n elements of 4 bytes, sixteen at a time.
func (k *kernel) sixteens(label string, n reg, body func()) { k.loop(label, n, 16, body) }

// softmax generates the conversion of scores to weights: Exp32(score - largest score), which is never
// above zero.
func (a *assembly) softmax() {
	k := a.kernel("softmax", "(s *float32, n int, sum *float32)",
		"replaces s by e^(s-max) and writes the 16 lanes of their sum; n is a positive multiple of 16, unused places are -Inf.")
	s, n, sum := k.load("s"), k.load("n"), k.load("sum")
	at, left := k.copied(s), k.copied(n)
	top, x, sums := k.constants(float(math.Inf(-1)))[0], k.vectors(4), k.vectors(4)
	for _, v := range sums { // of the largest scores, until they are those of weights
		k.mov(v, top)
	}
	k.sixteens("largest", left, func() {
		k.ld1(x, at)
		for i, x := range x {
			k.fmaxnm(sums[i], sums[i], x) // ignores NaN
		}
	})
	k.fmaxnm(sums[0], sums[0], sums[1])
	k.fmaxnm(sums[2], sums[2], sums[3])
	k.fmaxnm(top, sums[0], sums[2])
	k.fmaxnmv(top, top)
	k.op("VDUP V%d.S[0], V%d.S4", top, top)
	for _, v := range sums {
		k.zero(v)
	}
	e := k.exponent(false)
	k.op("MOVD %v, %v", s, at)
	k.sixteens("weights", n, func() {
		k.ld1(x, at)
		for _, x := range x {
			k.fsub(x, x, top)
		}
		k.exp(e, x[:2])
		k.exp(e, x[2:])
		k.st1(x, s)
		for i, x := range x {
			k.fadd(sums[i], sums[i], x)
		}
	})
	k.st1(sums, sum)
	k.end()
}

// squares generates the first half of an RMSNorm, the sum of squares in lanes.
func (a *assembly) squares() {
	k := a.kernel("squares", "(x *float32, n int, sum *float32)", "writes the 16 lanes of Σx²; n is a positive multiple of 16.")
	x, n, sum := k.load("x"), k.load("n"), k.load("sum")
	acc, v := k.vectors(4), k.vectors(4)
	for _, a := range acc {
		k.zero(a)
	}
	k.sixteens("step", n, func() {
		k.ld1(v, x)
		for i, v := range v {
			k.fmla(acc[i], v, v)
		}
	})
	k.st1(acc, sum)
	k.end()
}

// scale generates the second half of an RMSNorm, two products per element.
func (a *assembly) scale() {
	k := a.kernel("scale", "(dst, x, w *float32, r float32, n int)", "writes (x·r)·w; n is a positive multiple of 16.")
	dst, x, w, n := k.load("dst"), k.load("x"), k.load("w"), k.load("n")
	r, v, by := k.vector(), k.vectors(4), k.vectors(4)
	k.op("FMOVS %s, F%d", k.param("r"), r)
	k.sixteens("step", n, func() {
		k.ld1(v, x)
		k.ld1(by, w)
		for _, v := range v {
			k.fmulLane(v, v, r, 0)
		}
		for i, v := range v {
			k.fmul(v, v, by[i])
		}
		k.st1(v, dst)
	})
	k.end()
}

// silu generates SiLUMul of internal/f32.
func (a *assembly) silu() {
	k := a.kernel("silu", "(dst, gate, up *float32, n int)", "writes (gate/(1+e^-gate))·up; n is a positive multiple of 16.")
	dst, gate, up, n := k.load("dst"), k.load("gate"), k.load("up"), k.load("n")
	e := k.exponent(true)
	k.sixteens("step", n, func() { k.siluMul(e, dst, gate, up) })
	k.end()
}

// siluMul writes SiLUMul of sixteen elements and advances the pointers.
func (k *kernel) siluMul(e *exponent, dst, gate, up reg) {
	k.block(func() {
		g, u := k.vectors(4), k.vectors(4)
		x := k.vectors(4)
		k.ld1(g, gate)
		k.ld1(u, up)
		for i, g := range g {
			k.fneg(x[i], g)
		}
		k.exp(e, x[:2])
		k.exp(e, x[2:])
		for _, x := range x {
			k.fadd(x, x, e.one())
		}
		for i, g := range g {
			k.fdiv(g, g, x[i])
		}
		for i, g := range g {
			k.fmul(g, g, u[i])
		}
		k.st1(g, dst)
	})
}

// siluPairs generates silu for rows of a panel with 32 columns of gate followed by 32 of up.
func (a *assembly) siluPairs() {
	k := a.kernel("siluPairs", "(dst *float32, dstStride int, tile *float32, rows int)",
		"writes (gate/(1+e^-gate))·up, 32 a row; tile is [rows][32 of gate, 32 of up], dstStride is in bytes. dst may be the tile.")
	dst, stride, tile, rows := k.load("dst"), k.load("dstStride"), k.load("tile"), k.load("rows")
	e := k.exponent(true)
	at, up := k.reg(), k.reg()
	k.loop("row", rows, 1, func() {
		k.op("MOVD %v, %v", dst, at)
		k.op("ADD $128, %v, %v", tile, up)
		for range 2 {
			k.siluMul(e, at, tile, up)
		}
		k.op("ADD %v, %v, %v", stride, dst, dst)
		k.advance(128, tile)
	})
	k.end()
}

// add generates the sum of two rows.
func (a *assembly) add() {
	k := a.kernel("add", "(dst, x *float32, n int)", "adds x to dst; n is a positive multiple of 16.")
	dst, x, n := k.load("dst"), k.load("x"), k.load("n")
	from, v, w := k.copied(dst), k.vectors(4), k.vectors(4)
	k.sixteens("step", n, func() {
		k.ld1(v, from)
		k.ld1(w, x)
		for i, v := range v {
			k.fadd(v, v, w[i])
		}
		k.st1(v, dst)
	})
	k.end()
}

// rotate generates the rotary embedding of one head, without fused multiply-adds.
func (a *assembly) rotate() {
	k := a.kernel("rotate", "(x, cos, sin *float32, half int)", "replaces x[i], x[half+i] by their rotation; half is a positive multiple of 8.")
	x, cos, sin, half := k.load("x"), k.load("cos"), k.load("sin"), k.load("half")
	upper := k.reg()
	k.op("ADD %v<<2, %v, %v", half, x, upper)
	from, fromUpper := k.copied(x), k.copied(upper)
	a0, b, c, s, as, bs := k.vectors(2), k.vectors(2), k.vectors(2), k.vectors(2), k.vectors(2), k.vectors(2)
	k.loop("step", half, 8, func() {
		k.ld1(a0, from)
		k.ld1(b, fromUpper)
		k.ld1(c, cos)
		k.ld1(s, sin)
		for i := range 2 {
			k.fmul(as[i], a0[i], s[i])
			k.fmul(bs[i], b[i], s[i])
			k.fmul(a0[i], a0[i], c[i])
			k.fmul(b[i], b[i], c[i])
			k.fsub(a0[i], a0[i], bs[i])
			k.fadd(b[i], b[i], as[i])
		}
		k.st1(a0, x)
		k.st1(b, upper)
	})
	k.end()
}
