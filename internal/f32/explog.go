package f32

import "math"

const (
	log2e = 1.44269504  // 1/ln 2
	ln2Hi = 0.693359375 // ln 2 in 9 bits, so that n·ln2Hi is exact; ln 2 = ln2Hi + ln2Lo
	ln2Lo = -2.12194440e-4
	// round added to and taken from |v| < 2^22 rounds v to an integer, ties to even.
	round = 12582912 // 1.5·2^23
)

// Exp32 is e^x: 0 below -87, +Inf above 88.72283, NaN for NaN. With
// n = round(x/ln 2) and f = x - n·ln 2 taken off in two fma steps, the Taylor
// polynomial 1 + f + f²/2 + … + f⁶/720 is evaluated by fma (Horner) and scaled by
// 2^n. The error is below 4 ulp, most of it the polynomial's truncation.
func Exp32(x float32) float32 {
	if !(x >= -87 && x <= 88.72283) {
		switch {
		case x < -87:
			return 0
		case x > 88.72283:
			return float32(math.Inf(1))
		}
		return x
	}
	n := float32(float32(x*log2e)+round) - round
	y, ok := expTry(n, x)
	if !ok {
		y = expPoly(n, x)
	}
	// n is in [-126, 128]; half the scale first, for 2^128 is no f32.
	half := math.Float32frombits(uint32(int32(n)-1+127) << 23)
	if n > -126 {
		return float32(float32(y*half) * 2)
	}
	return float32(y * math.Float32frombits(uint32(int32(n)+127)<<23))
}

// expPoly returns the polynomial of Exp32 at f = x - n·ln 2.
func expPoly(n, x float32) float32 {
	f := FMA32(n, -ln2Hi, x)
	f = FMA32(n, -ln2Lo, f)
	y := FMA32(1.0/720, f, 1.0/120)
	y = FMA32(y, f, 1.0/24)
	y = FMA32(y, f, 1.0/6)
	y = FMA32(y, f, 0.5)
	y = FMA32(y, f, 1)
	return FMA32(y, f, 1)
}

// The constants of expPoly, rounded to f32 and widened.
const (
	ln2Hi64 = float64(float32(ln2Hi))
	ln2Lo64 = float64(float32(ln2Lo))
	inv720  = float64(float32(1.0 / 720))
	inv120  = float64(float32(1.0 / 120))
	inv24   = float64(float32(1.0 / 24))
	inv6    = float64(float32(1.0 / 6))
)

// expTry is expPoly where ok is true: it makes no calls and keeps its values in f64. Rounding a
// sum to 24 bits equals rounding it to f32, because each sum is either exact or in the range of
// normal f32 numbers: f is x itself if n is 0, else 0 or of magnitude above 2^-60, and the later
// sums lie in [2^-10, 4].
func expTry(n, x float32) (y float32, ok bool) {
	m := float64(n)
	f, k0 := round24(m*-ln2Hi64 + float64(x)) // products of f32 are exact, fused or not
	f, k1 := round24(m*-ln2Lo64 + f)
	e, k2 := round24(inv720*f + inv120)
	e, k3 := round24(e*f + inv24)
	e, k4 := round24(e*f + inv6)
	e, k5 := round24(e*f + 0.5)
	e, k6 := round24(e*f + 1)
	e, k7 := round24(e*f + 1)
	return float32(e), k0 && k1 && k2 && k3 && k4 && k5 && k6 && k7
}

// round24 rounds s, an f64 sum that may itself be rounded, to the 24 bits of an f32. ok is false
// if s lies half-way between two such values: the exact sum may then be on either side.
func round24(s float64) (r float64, ok bool) {
	u := math.Float64bits(s) + tieBits
	v := u &^ dropMask
	return math.Float64frombits(v), u != v
}

// Log32 is the natural logarithm: -Inf for ±0, NaN below 0 and for NaN, +Inf for
// +Inf. x = m·2^n with m in [√½, √2); with s = (m-1)/(m+1) the odd series
// ln m = 2s + 2s³/3 + … + 2s¹¹/11 is evaluated by fma in s², and n·ln 2 is added
// in two fma steps. The error is below 1 ulp.
func Log32(x float32) float32 {
	if !(x > 0 && x <= math.MaxFloat32) {
		switch {
		case x == 0:
			return float32(math.Inf(-1))
		case x < 0:
			return float32(math.NaN())
		}
		return x
	}
	n := int32(0)
	if x < 0x1p-126 {
		x = float32(x * 0x1p24)
		n = -24
	}
	const sqrtHalf = 0x3f3504f3 // bits of √½
	u := math.Float32bits(x) - sqrtHalf
	n += int32(u) >> 23
	m := math.Float32frombits(u&(1<<23-1) + sqrtHalf)
	f := m - 1 // exact
	s := f / (f + 2)
	z := float32(s * s)
	y := float32(2.0 / 11)
	y = FMA32(y, z, 2.0/9)
	y = FMA32(y, z, 2.0/7)
	y = FMA32(y, z, 2.0/5)
	y = FMA32(y, z, 2.0/3)
	y = float32(y * z)
	// ln m = 2s + s·y, and 2s = f - s·f: so the large part, f, stays exact.
	y = FMA32(s, y-f, float32(float32(n)*ln2Lo))
	return FMA32(float32(n), ln2Hi, f+y)
}

// SiLUMul is (g/(1+e^-g))·u, each step rounded.
func SiLUMul(g, u float32) float32 {
	return float32(float32(g/(1+Exp32(-g))) * u)
}
