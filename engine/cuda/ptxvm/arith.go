package ptxvm

import (
	"math"
	"math/bits"

	"github.com/coppice-llm/coppice/internal/f32"
)

func f(x uint64) float32 { return math.Float32frombits(uint32(x)) }

// bits32 returns the bits of a result; every NaN becomes the canonical NaN of GPUs.
func bits32(x float32) uint64 {
	if x != x {
		return 0x7fffffff
	}
	return uint64(math.Float32bits(x))
}

func d64(x uint64) float64 { return math.Float64frombits(x) }

var unaryOps = map[string]func(a uint64) uint64{
	"mov.b32": low32, "mov.u32": low32, "mov.f32": low32, "mov.u64": same, "mov.b64": same, "mov.f64": same,
	"cvta.to.global.u64": same, // one address space
	"not.b32":            func(a uint64) uint64 { return uint64(^uint32(a)) },
	"not.b64":            func(a uint64) uint64 { return ^a },
	"neg.f32":            func(a uint64) uint64 { return uint64(uint32(a) ^ 1<<31) },
	"popc.b32":           func(a uint64) uint64 { return uint64(bits.OnesCount32(uint32(a))) },
	"sqrt.rn.f32":        func(a uint64) uint64 { return bits32(f32.Sqrt32(f(a))) },
	"cvt.s64.s32":        func(a uint64) uint64 { return uint64(int64(int32(a))) },
	"cvt.u64.u32":        low32, "cvt.u32.u64": low32,
	"cvt.rn.f32.s32":  func(a uint64) uint64 { return bits32(float32(int32(a))) },
	"cvt.rn.f32.u32":  func(a uint64) uint64 { return bits32(float32(uint32(a))) },
	"cvt.f32.f16":     func(a uint64) uint64 { return bits32(f32.FromF16(uint16(a))) },
	"cvt.f64.f32":     func(a uint64) uint64 { return math.Float64bits(float64(f(a))) },
	"cvt.rn.f64.u64":  func(a uint64) uint64 { return math.Float64bits(float64(a)) },
	"cvt.rzi.s32.f32": func(a uint64) uint64 { return uint64(uint32(toInt32(math.Trunc(float64(f(a)))))) },
	"cvt.rni.u64.f32": func(a uint64) uint64 { return toUint64(math.RoundToEven(float64(f(a)))) },
	"cvt.rpi.u64.f64": func(a uint64) uint64 { return toUint64(math.Ceil(d64(a))) },
	"cvt.rn.bf16.f32": func(a uint64) uint64 { return uint64(narrow(uint32(a))) },
	"cvt.u32.u16":     func(a uint64) uint64 { return uint64(uint16(a)) },
	"cvt.u16.u32":     func(a uint64) uint64 { return uint64(uint16(a)) },
	"mov.u16":         func(a uint64) uint64 { return uint64(uint16(a)) },
}

func same(a uint64) uint64  { return a }
func low32(a uint64) uint64 { return uint64(uint32(a)) }

var binaryOps = map[string]func(a, b uint64) uint64{
	"add.s32": func(a, b uint64) uint64 { return uint64(uint32(a) + uint32(b)) },
	"sub.s16": func(a, b uint64) uint64 { return uint64(uint16(a) - uint16(b)) },
	"sub.s32": func(a, b uint64) uint64 { return uint64(uint32(a) - uint32(b)) },
	"add.s64": func(a, b uint64) uint64 { return a + b },
	"sub.s64": func(a, b uint64) uint64 { return a - b },
	"and.b32": func(a, b uint64) uint64 { return uint64(uint32(a) & uint32(b)) },
	"or.b32":  func(a, b uint64) uint64 { return uint64(uint32(a) | uint32(b)) },
	"xor.b32": func(a, b uint64) uint64 { return uint64(uint32(a) ^ uint32(b)) },
	"and.b64": func(a, b uint64) uint64 { return a & b },
	"or.b64":  func(a, b uint64) uint64 { return a | b },
	"xor.b64": func(a, b uint64) uint64 { return a ^ b },
	// A shift by the width or more gives 0, or copies of the sign.
	"shl.b32": func(a, b uint64) uint64 { return uint64(uint32(a) << uint32(b)) },
	"shl.b16": func(a, b uint64) uint64 { return uint64(uint16(a) << uint32(b)) },
	"shl.b64": func(a, b uint64) uint64 { return a << uint32(b) },
	"shr.u32": func(a, b uint64) uint64 { return uint64(uint32(a) >> uint32(b)) },
	"shr.u64": func(a, b uint64) uint64 { return a >> uint32(b) },
	"shr.s32": func(a, b uint64) uint64 { return uint64(uint32(int32(a) >> uint32(b))) },

	"mul.lo.s16":   func(a, b uint64) uint64 { return uint64(uint16(a) * uint16(b)) },
	"mul.lo.s32":   func(a, b uint64) uint64 { return uint64(uint32(a) * uint32(b)) },
	"mul.lo.s64":   func(a, b uint64) uint64 { return a * b },
	"mul.hi.s32":   func(a, b uint64) uint64 { return uint64(uint32(int64(int32(a)) * int64(int32(b)) >> 32)) },
	"mul.wide.s32": func(a, b uint64) uint64 { return uint64(int64(int32(a)) * int64(int32(b))) },
	"mul.wide.u32": func(a, b uint64) uint64 { return uint64(uint32(a)) * uint64(uint32(b)) },
	"mul.wide.u16": func(a, b uint64) uint64 { return uint64(uint32(uint16(a)) * uint32(uint16(b))) },
	"div.s32":      func(a, b uint64) uint64 { return uint64(uint32(int32(a) / divisor(int32(b)))) },
	"rem.s32":      func(a, b uint64) uint64 { return uint64(uint32(int32(a) % divisor(int32(b)))) },
	"div.u32":      func(a, b uint64) uint64 { return uint64(uint32(a) / divisor(uint32(b))) },
	"div.u64":      func(a, b uint64) uint64 { return a / divisor(b) },
	"rem.u32":      func(a, b uint64) uint64 { return uint64(uint32(a) % divisor(uint32(b))) },
	"min.s32":      func(a, b uint64) uint64 { return uint64(uint32(min(int32(a), int32(b)))) },
	"max.s32":      func(a, b uint64) uint64 { return uint64(uint32(max(int32(a), int32(b)))) },
	"min.u32":      func(a, b uint64) uint64 { return uint64(min(uint32(a), uint32(b))) },
	"min.u64":      func(a, b uint64) uint64 { return min(a, b) },
	"max.u64":      func(a, b uint64) uint64 { return max(a, b) },

	"add.rn.f32":        func(a, b uint64) uint64 { return bits32(f(a) + f(b)) },
	"sub.rn.f32":        func(a, b uint64) uint64 { return bits32(f(a) - f(b)) },
	"mul.rn.f32":        func(a, b uint64) uint64 { return bits32(f(a) * f(b)) },
	"div.rn.f32":        func(a, b uint64) uint64 { return bits32(f(a) / f(b)) },
	"max.f32":           maxF32,
	"min.f32":           func(a, b uint64) uint64 { return maxF32(a^1<<31, b^1<<31) ^ 1<<31 }, // of numbers and NaN alike, but NaN gets a sign
	"mul.rn.f64":        func(a, b uint64) uint64 { return math.Float64bits(d64(a) * d64(b)) },
	"cvt.rn.bf16x2.f32": func(a, b uint64) uint64 { return uint64(narrow(uint32(a)))<<16 | uint64(narrow(uint32(b))) },
}

var ternaryOps = map[string]func(a, b, c uint64) uint64{
	"fma.rn.f32": func(a, b, c uint64) uint64 { return bits32(f32.FMA32(f(a), f(b), f(c))) },
	"mad.lo.s32": func(a, b, c uint64) uint64 { return uint64(uint32(a)*uint32(b) + uint32(c)) },
	"prmt.b32":   permute,
}

// compares has the comparisons of setp, by operator and type. Operators that end in u are also
// true if an operand is NaN.
var compares = map[string]func(a, b uint64) bool{
	"eq.s32": func(a, b uint64) bool { return uint32(a) == uint32(b) },
	"eq.b32": func(a, b uint64) bool { return uint32(a) == uint32(b) },
	"ne.s32": func(a, b uint64) bool { return uint32(a) != uint32(b) },
	"lt.s32": func(a, b uint64) bool { return int32(a) < int32(b) },
	"le.s32": func(a, b uint64) bool { return int32(a) <= int32(b) },
	"gt.s32": func(a, b uint64) bool { return int32(a) > int32(b) },
	"ge.s32": func(a, b uint64) bool { return int32(a) >= int32(b) },
	"lt.u32": func(a, b uint64) bool { return uint32(a) < uint32(b) },
	"gt.u16": func(a, b uint64) bool { return uint16(a) > uint16(b) },
	"gt.u32": func(a, b uint64) bool { return uint32(a) > uint32(b) },
	"ge.u32": func(a, b uint64) bool { return uint32(a) >= uint32(b) },
	"eq.s64": func(a, b uint64) bool { return a == b },
	"ne.s64": func(a, b uint64) bool { return a != b },
	"lt.u64": func(a, b uint64) bool { return a < b },
	"le.u64": func(a, b uint64) bool { return a <= b },
	"gt.u64": func(a, b uint64) bool { return a > b },
	"ge.u64": func(a, b uint64) bool { return a >= b },

	"eq.f32":  func(a, b uint64) bool { return f(a) == f(b) },
	"lt.f32":  func(a, b uint64) bool { return f(a) < f(b) },
	"le.f32":  func(a, b uint64) bool { return f(a) <= f(b) },
	"gt.f32":  func(a, b uint64) bool { return f(a) > f(b) },
	"ltu.f32": func(a, b uint64) bool { return !(f(a) >= f(b)) },
	"leu.f32": func(a, b uint64) bool { return !(f(a) > f(b)) },
	"geu.f32": func(a, b uint64) bool { return !(f(a) < f(b)) },
	"neu.f32": func(a, b uint64) bool { return !(f(a) == f(b)) },
}

// divisor returns b and panics with a fault if b is 0.
func divisor[T int32 | uint32 | uint64](b T) T {
	if b == 0 {
		fail(Arithmetic, 0, "the divisor is 0")
	}
	return b
}

func toInt32(x float64) int32 {
	if x != x {
		return 0
	}
	return int32(min(max(x, math.MinInt32), math.MaxInt32))
}

func toUint64(x float64) uint64 {
	switch {
	case !(x > 0):
		return 0
	case x >= 1<<64:
		return math.MaxUint64
	}
	return uint64(x)
}

// narrow rounds an f32 to bf16, ties to even.
func narrow(x uint32) uint16 {
	if x&0x7fffffff > 0x7f800000 {
		return 0x7fff
	}
	return uint16((x + 0x7fff + x>>16&1) >> 16)
}

// maxF32 returns the larger value. If one is NaN, it returns the other. +0 is larger than -0.
func maxF32(a, b uint64) uint64 {
	x, y := f(a), f(b)
	switch {
	case x != x:
		return bits32(y)
	case y != y || x > y:
		return bits32(x)
	case x == y:
		return uint64(uint32(a) & uint32(b))
	}
	return bits32(y)
}

// permute picks four bytes of b:a by the nibbles of c. If bit 3 of a nibble is set, the byte's sign
// bit fills the byte.
func permute(a, b, c uint64) uint64 {
	from, r := uint64(uint32(b))<<32|uint64(uint32(a)), uint64(0)
	for i := range 4 {
		n := c >> (4 * i) & 15
		v := from >> (8 * (n & 7)) & 255
		if n > 7 {
			v = uint64(uint8(int8(v) >> 7))
		}
		r |= v << (8 * i)
	}
	return r
}
