package f32

import "math"

// The product of two f32 values has at most 48 significant bits and is exact in f64. The f64 sum
// is then rounded to 53 bits, and once more to 24. The two roundings differ from a single one only
// if the first lands exactly half-way between two f32 values, or if the f32 result is subnormal,
// where the half-way points lie elsewhere. TryFMA detects these two cases by the bits of the sum,
// and fmaRare computes them.
const (
	dropBits  = 29                  // 53 - 24 bits of significand fall away
	dropMask  = 1<<dropBits - 1     // the bits that fall away
	tieBits   = 1 << (dropBits - 1) // exactly half an f32 ulp
	minNormal = (1023 - 126) << 53  // f64 bits of 2^-126, shifted left by one
)

// FMA32 is a·b+c rounded once to nearest even: what a hardware f32 fused
// multiply-add gives, in portable Go.
func FMA32(a, b, c float32) float32 {
	if Fuses() {
		return a*b + c
	}
	s, ok := TryFMA(a, b, c)
	if !ok {
		return fmaRare(a, b, c)
	}
	return s
}

// TryFMA returns FMA32(a, b, c) and true, or a value that may be wrong and false. It is small
// enough to inline. An inner loop calls TryFMA, and repeats its whole block with FMA32 if one step
// was not ok. That happens about once in 2^29 steps on random data, and where a sum is zero or
// subnormal.
func TryFMA(a, b, c float32) (r float32, ok bool) {
	if Fuses() {
		return a*b + c, true
	}
	s := float64(a)*float64(b) + float64(c) // the product is exact, fused or not
	return float32(s), !Halfway(s) && math.Float64bits(s)<<1 >= minNormal
}

// Halfway reports whether s lies half-way between two f32 of 24 bits. For any other s, a sum that may
// itself be rounded to f64, float32(s) is the exact sum rounded once, if that is no subnormal.
func Halfway(s float64) bool { return uint32(math.Float64bits(s))<<(32-dropBits) == 1<<31 }

// fmaRare rounds the sum to odd in f64, after which the rounding to f32 (24 bits
// or, for subnormals, fewer) is exact: 53 >= 24+2 bits (Boldo and Melquiond,
// "Emulation of FMA and correctly rounded sums: proved algorithms using rounding
// to odd", IEEE Trans. Computers 57(4), 2008).
//
//go:noinline
func fmaRare(a, b, c float32) float32 {
	p := float64(float64(a) * float64(b))
	q := float64(c)
	s := p + q
	// The error of the sum, exactly (Knuth's TwoSum: additions only).
	bb := s - p
	e := (p - (s - bb)) + (q - bb)
	// e is NaN or zero where s is not finite; a zero s is exact.
	if u := math.Float64bits(s); e != 0 && e == e && u&1 == 0 && s != 0 {
		if (e > 0) == (s > 0) {
			u++
		} else {
			u--
		}
		s = math.Float64frombits(u)
	}
	return float32(s)
}
