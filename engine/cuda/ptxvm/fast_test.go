package ptxvm

import (
	"math"
	"math/rand/v2"
	"strings"
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
			in := &instr{f1: unaryOps[opcode], f2: binaryOps[opcode], f3: ternaryOps[opcode], cmp: compares[strings.TrimPrefix(opcode, "setp.")], d: 3, a: 0, b: 1, c: 2}
			w := &warp{r: make([][lanes]uint64, 4), p: []uint32{0, 0, g.Uint32(), g.Uint32()}}
			for r := range 3 {
				for l := range lanes {
					w.r[r][l] = value()
				}
			}
			if in.cmp != nil {
				for l := range 5 {
					w.r[1][l] = w.r[0][l] // random values are seldom equal
				}
				compareFast(t, opcode, w, in, g.Uint32())
				continue
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
				case in.f3 != nil:
					want = in.f3(a, b, c)
				case w.p[in.c]>>l&1 != 0: // selp
					want = a
				default:
					want = b
				}
				if w.r[3][l] != want {
					t.Fatalf("%s of %#x, %#x, %#x is %#x, want %#x", opcode, a, b, c, w.r[3][l], want)
				}
			}
		}
	}
}

// compareFast compares the predicates that opcode sets in the lanes of the mask; the others keep theirs.
func compareFast(t *testing.T, opcode string, w *warp, in *instr, mask uint32) {
	t.Helper()
	before := w.p[in.d]
	fast[opcode](w, in, mask)
	for l := range lanes {
		want := before >> l & 1
		if mask>>l&1 != 0 {
			want = bit(in.cmp(w.r[0][l], w.r[1][l]))
		}
		if got := w.p[in.d] >> l & 1; got != want {
			t.Fatalf("%s of %#x and %#x with the lanes %#x sets lane %d to %d, want %d", opcode, w.r[0][l], w.r[1][l], mask, l, got, want)
		}
	}
}

// TestMMAOfZeroRows checks that mma gives the same bits for rows of zeros as for other rows: those of the sum in
// f64, with signed zeros, infinities and NaN in B and in C.
func TestMMAOfZeroRows(t *testing.T) {
	g := rand.New(rand.NewPCG(5, 6))
	odd := []uint64{0, 0x8000, 0x7f80, 0xff80, 0x7fc0, 0x3f80, 0x0001}
	for trial := range 400 {
		in := &instr{more: []int32{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13}} // D, A, B, C
		w := &warp{r: make([][lanes]uint64, 14)}
		element := func(special int) uint64 {
			if g.IntN(special) == 0 {
				return odd[g.IntN(len(odd))]
			}
			return uint64(narrow(math.Float32bits(float32(g.NormFloat64()))))
		}
		for r := 4; r < 14; r++ {
			for l := range lanes {
				switch zero := r < 8 && (l/4+r%2*8)%3 != trial%3; {
				case zero:
					w.r[r][l] = []uint64{0, 0x80008000, 0x8000}[g.IntN(3)]
				case r < 8:
					w.r[r][l] = element(50) | element(50)<<16
				case r < 10:
					w.r[r][l] = element(1+trial%2*1000) | element(1000)<<16
				default:
					w.r[r][l] = element(3) << 16
				}
			}
		}
		runMMA(w, in, full)
		for l := range lanes {
			for i := range 4 {
				row, col := l/4+i/2*8, l%4*2+i%2
				var a, b [16]float64
				for k := range a {
					lane := k % 8 / 2
					a[k] = widen(w.r[4+row/8+k/8*2][row%8*4+lane] >> (k % 2 * 16) & 0xffff)
					b[k] = widen(w.r[8+k/8][col*4+lane] >> (k % 2 * 16) & 0xffff)
				}
				if got, want := w.r[i][l], mmaSum(&a, &b, f(w.r[10+i][l])); got != want {
					t.Fatalf("row %d, column %d of %v and %v is %#x, want %#x", row, col, a, b, got, want)
				}
			}
		}
	}
}
