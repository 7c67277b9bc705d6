package f32

// fuses reports whether the compiler turns a·b+c of float32 into one fused multiply-add, which rounds
// once. The language allows it and does not demand it (Go specification, "Floating-point
// operators"), so a computation that needs it decides.
var fuses = mayFuse && fuse(third, third, -float32(third*third)) != 0

// third is 1/3, whose square is no f32: a sum with the negative rounded square is the rounding error if
// the sum is fused, else zero. It is a variable, since the compiler computes constants exactly.
var third = float32(1) / 3

//go:noinline
func fuse(a, b, c float32) float32 { return a*b + c }

// Fuses reports whether a·b+c in float32 is FMA32(a, b, c) in compiled code of this program: true on
// arm64, loong64, ppc64, riscv64 and s390x, and on amd64 only if it was compiled for GOAMD64=v3.
func Fuses() bool { return mayFuse && fuses }
