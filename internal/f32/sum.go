package f32

import "math"

// Lanes is the number of partial sums of every canonical reduction.
const Lanes = 16

// Tree16 adds the lanes: v[i]+v[i+8], then +4, +2, +1. v is left as it is.
func Tree16(v *[Lanes]float32) float32 {
	a0, a1, a2, a3 := v[0]+v[8], v[1]+v[9], v[2]+v[10], v[3]+v[11]
	a4, a5, a6, a7 := v[4]+v[12], v[5]+v[13], v[6]+v[14], v[7]+v[15]
	return ((a0 + a4) + (a2 + a6)) + ((a1 + a5) + (a3 + a7))
}

// Dot is the scalar product of a and b in 16 lanes: lane j takes elements j,
// j+16, … ascending, the first as a product, the others by fma; then Tree16.
// len(a) == len(b) must be a positive multiple of 16.
func Dot(a, b []float32) float32 {
	b = b[:len(a)]
	if len(a) == Lanes {
		return dot16((*[Lanes]float32)(a), (*[Lanes]float32)(b))
	}
	var v [Lanes]float32
	for j := range v {
		acc, good := float32(a[j]*b[j]), true
		for i := j + Lanes; i < len(a); i += Lanes {
			r, ok := TryFMA(a[i], b[i], acc)
			acc, good = r, good && ok
		}
		if !good {
			acc = float32(a[j] * b[j])
			for i := j + Lanes; i < len(a); i += Lanes {
				acc = FMA32(a[i], b[i], acc)
			}
		}
		v[j] = acc
	}
	return Tree16(&v)
}

// dot16 is Dot for one chunk, where no fma occurs.
func dot16(a, b *[Lanes]float32) float32 {
	a0 := float32(a[0]*b[0]) + float32(a[8]*b[8])
	a4 := float32(a[4]*b[4]) + float32(a[12]*b[12])
	a2 := float32(a[2]*b[2]) + float32(a[10]*b[10])
	a6 := float32(a[6]*b[6]) + float32(a[14]*b[14])
	a1 := float32(a[1]*b[1]) + float32(a[9]*b[9])
	a5 := float32(a[5]*b[5]) + float32(a[13]*b[13])
	a3 := float32(a[3]*b[3]) + float32(a[11]*b[11])
	a7 := float32(a[7]*b[7]) + float32(a[15]*b[15])
	return ((a0 + a4) + (a2 + a6)) + ((a1 + a5) + (a3 + a7))
}

// RMSNorm writes dst[i] = (x[i]·r)·w[i] with r = 1/√(Σx²/n + eps). The sum of
// squares runs in 16 lanes by fma from zero, then Tree16; the root and the
// quotients are rounded once each. All lengths are equal, a multiple of 16; dst
// may be x.
func RMSNorm(dst, x, w []float32, eps float32) {
	w, dst = w[:len(x)], dst[:len(x)]
	var v [Lanes]float32
	for i := 0; i+Lanes <= len(x); i += Lanes {
		c := (*[Lanes]float32)(x[i:])
		for j := range v {
			v[j] = FMA32(c[j], c[j], v[j])
		}
	}
	mean := float32(Tree16(&v) / float32(len(x)))
	r := 1 / Sqrt32(mean+eps)
	for i, xi := range x {
		dst[i] = float32(float32(xi*r) * w[i])
	}
}

// Sqrt32 is the square root rounded once: the f64 root has more than twice 24
// bits, so the second rounding does no harm (Figueroa, SIGNUM Newsletter 30, 1995).
func Sqrt32(x float32) float32 { return float32(math.Sqrt(float64(x))) }
