package model

import (
	"math"

	"github.com/coppice-llm/coppice/internal/f32"
)

// Generated values are the same bits on every machine: they come from a counter-based hash,
// integer sums, and IEEE multiplications that are rounded one by one (the explicit conversions
// keep compilers from fusing them with an addition).

const golden = 0x9e3779b97f4a7c15 // splitmix64's increment (Steele, Lea, Flood, OOPSLA 2014): 2^64 / golden ratio

// mix is the output function of splitmix64.
func mix(z uint64) uint64 {
	z ^= z >> 30
	z *= 0xbf58476d1ce4e5b9
	z ^= z >> 27
	z *= 0x94d049bb133111eb
	return z ^ z>>31
}

// stream generates the values of one tensor by index.
type stream struct {
	key  uint64
	mean float64
	unit float64 // one step of the sum of four uniforms, in units of the value
}

// newStream returns a stream keyed by seed and tensor name. Values have the given mean and
// standard deviation.
func newStream(seed uint64, name string, mean, std float64) *stream {
	// A uniform in (-1/2, 1/2) has variance 1/12, the sum of four 1/3, so sqrt(3) times the sum
	// has variance 1. A step of the sum is 2^-16.
	root := math.Sqrt(3)
	return &stream{
		key:  mix(mix(seed+golden) ^ fnv1a(name)),
		mean: mean,
		unit: float64(float64(root*std) * (1.0 / (1 << 16))),
	}
}

// at returns value i of the tensor, rounded to bf16. The value is the sum of four uniform numbers,
// scaled: the 16-bit quarters of one splitmix64 output, each at the middle of its interval of
// 2^-16.
func (s *stream) at(i uint64) uint16 {
	z := mix(s.key + (i+1)*golden)
	sum := int64(z&0xffff) + int64(z>>16&0xffff) + int64(z>>32&0xffff) + int64(z>>48) + 2 - 2<<16
	v := float64(float64(sum) * s.unit)
	return f32.ToBF16(float32(float64(s.mean + v)))
}

// fnv1a returns the 64-bit FNV-1a hash.
func fnv1a(s string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	return h
}
