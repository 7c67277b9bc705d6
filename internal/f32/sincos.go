package f32

import "math"

// π/2 in three parts of 33, 33 and 53 bits, so that n·part is exact for the
// first two while n < 2^20.
var pio2 = [3]float64{
	math.Float64frombits(0x3ff921fb54400000),
	math.Float64frombits(0x3dd0b4611a600000),
	math.Float64frombits(0x3ba3198a2e037073),
}

// Taylor coefficients, highest power first: of (sin x - x)/x³ and
// (cos x - 1)/x² in x², enough for 53 bits on |x| <= π/4.
var (
	sinTaylor = [...]float64{-1.0 / 1307674368000, 1.0 / 6227020800, -1.0 / 39916800, 1.0 / 362880, -1.0 / 5040, 1.0 / 120, -1.0 / 6}
	cosTaylor = [...]float64{1.0 / 20922789888000, -1.0 / 87178291200, 1.0 / 479001600, -1.0 / 3628800, 1.0 / 40320, -1.0 / 720, 1.0 / 24, -0.5}
)

// SinCos is the sine and cosine of x for |x| < 2^20, computed in f64 without
// fusing and rounded to f32: within 0.5001 ulp. Larger arguments lose bits.
func SinCos(x float32) (sin, cos float32) {
	v := float64(x)
	n := math.RoundToEven(float64(v * (2 / math.Pi)))
	r := v - float64(n*pio2[0])
	r -= float64(n * pio2[1])
	r -= float64(n * pio2[2])
	z := float64(r * r)
	s, c := horner(sinTaylor[:], z), horner(cosTaylor[:], z)
	s = r + float64(float64(r*z)*s)
	c = 1 + float64(z*c)
	switch int64(n) & 3 {
	case 1:
		s, c = c, -s
	case 2:
		s, c = -s, -c
	case 3:
		s, c = -c, s
	}
	return float32(s), float32(c)
}

func horner(coef []float64, z float64) float64 {
	y := 0.0
	for _, c := range coef {
		y = float64(y*z) + c
	}
	return y
}
