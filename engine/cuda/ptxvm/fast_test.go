package ptxvm

import (
	"math"
	"math/rand/v2"
	"testing"
)

// TestFast compares the loops for whole warps with the functions for one lane.
func TestFast(t *testing.T) {
	g := rand.New(rand.NewPCG(3, 4))
	value := func() uint64 {
		switch g.IntN(4) {
		case 0:
			return uint64(math.Float32bits(float32(g.NormFloat64())))
		case 1:
			return []uint64{0, 1, 31, 32, 64, 0x7f800000, 0xff800000, 0x7fc00000, 0x80000000, 0xffffffff, math.MaxUint64}[g.IntN(11)]
		}
		return g.Uint64() >> (32 * g.IntN(2))
	}
	for opcode, do := range fast {
		for range 50 {
			in := &instr{f1: unaryOps[opcode], f2: binaryOps[opcode], f3: ternaryOps[opcode], d: 3, a: 0, b: 1, c: 2}
			w := &warp{r: make([][lanes]uint64, 4)}
			for r := range 3 {
				for l := range lanes {
					w.r[r][l] = value()
				}
			}
			do(w, in, full)
			for l := range lanes {
				a, b, c := w.r[0][l], w.r[1][l], w.r[2][l]
				var want uint64
				switch {
				case in.f1 != nil:
					want = in.f1(a)
				case in.f2 != nil:
					want = in.f2(a, b)
				default:
					want = in.f3(a, b, c)
				}
				if w.r[3][l] != want {
					t.Fatalf("%s of %#x, %#x, %#x is %#x, want %#x", opcode, a, b, c, w.r[3][l], want)
				}
			}
		}
	}
}
