package f32

import "math"

// FromF16 widens IEEE 754 binary16 bits (1 sign, 5 exponent with bias 15, 10 fraction
// bits). Every value is exact.
func FromF16(h uint16) float32 {
	sign := uint32(h>>15) << 31
	exp := uint32(h>>10) & 31
	frac := uint32(h) & 1023
	switch exp {
	case 31: // infinity and NaN
		return math.Float32frombits(sign | 0xff<<23 | frac<<13)
	case 0: // zero and subnormals: frac units of 2^-24
		abs := float32(frac) * (1.0 / (1 << 24))
		return math.Float32frombits(sign | math.Float32bits(abs))
	}
	return math.Float32frombits(sign | (exp+127-15)<<23 | frac<<13)
}

// ToF16 rounds to the nearest binary16, ties to even; 65520 and more become infinity.
func ToF16(x float32) uint16 {
	bits := math.Float32bits(x)
	sign, abs := uint16(bits>>16)&0x8000, bits&^(1<<31)
	switch {
	case abs > 0xff<<23:
		return sign | 0x7e00 // NaN
	case abs >= 0x477ff000: // 65520
		return sign | 0x7c00
	case abs < 113<<23: // below 2^-14: units of 2^-24
		// 0.5 has units of 2^-24, so the sum rounds to them, ties to even.
		sum := math.Float32frombits(abs) + 0.5
		return sign | uint16(math.Float32bits(sum)-math.Float32bits(0.5))
	}
	abs += 0xfff + abs>>13&1
	return sign | uint16(abs>>13-(127-15)<<10)
}

// FromBF16 widens bfloat16 bits, the upper half of an f32.
func FromBF16(h uint16) float32 { return math.Float32frombits(uint32(h) << 16) }

// ToBF16 rounds to the nearest bfloat16, ties to even.
func ToBF16(x float32) uint16 {
	bits := math.Float32bits(x)
	if bits&^(1<<31) > 0xff<<23 {
		return uint16(bits>>16) | 0x40 // NaN stays NaN
	}
	return uint16((bits + 0x7fff + bits>>16&1) >> 16)
}
