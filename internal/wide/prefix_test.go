package wide

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"
)

// plain is the oracle of CommonPrefix.
func plain[T Word | ~uint64](a, b []T) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

// TestCommonPrefix puts the first difference, and the end of either side, at
// every place around the block sizes, at odd and even addresses.
func TestCommonPrefix(t *testing.T) {
	base := make([]uint32, 2*longBlock+shortBlock+9)
	for i := range base {
		base[i] = uint32(i) * 2654435761
	}
	lengths := []int{0, 1, 2, 3, 7, 8, 63, 64, 65, 127, 128, 129, 136, 137, 959, 1023, 1024, 1025, 1031, 1032, 1033, 1160, 2047, 2048, 2056, 2057, len(base) - 1}
	for _, n := range lengths {
		for skip := range 2 {
			a := base[skip : skip+n]
			b := slices.Clone(a)
			if got := CommonPrefix(a, b); got != n {
				t.Fatalf("equal runs of %d: %d", n, got)
			}
			for at := range b {
				for _, flip := range []uint32{1, 1 << 31} {
					b[at] ^= flip
					if got := CommonPrefix(a, b); got != at {
						t.Fatalf("runs of %d that differ at %d: %d", n, at, got)
					}
					b[at] ^= flip
				}
			}
		}
		for _, m := range lengths {
			if got := CommonPrefix(base[:n], base[:m]); got != min(n, m) {
				t.Fatalf("prefixes of %d and %d: %d", n, m, got)
			}
		}
	}
}

func TestCommonPrefixAgainstPlain(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 5000 {
		a, b := make([]int32, rng.IntN(6000)), make([]int32, rng.IntN(6000))
		for i := rng.IntN(8); i > 0; i-- { // few differences, far apart
			if len(a) > 0 {
				a[rng.IntN(len(a))] = int32(rng.Uint32())
			}
		}
		if got, want := CommonPrefix(a, b), plain(a, b); got != want {
			t.Fatalf("%d words against %d: %d, want %d", len(a), len(b), got, want)
		}
	}
}

// TestCommonPrefixOfHashes puts the first difference at every place of runs of 64-bit values, in
// either half of a value.
func TestCommonPrefixOfHashes(t *testing.T) {
	base := make([]uint64, longBlock+shortBlock)
	for i := range base {
		base[i] = uint64(i) * 0x9e3779b97f4a7c15
	}
	for _, n := range []int{0, 1, 3, 4, 5, 31, 32, 33, 511, 512, 513, len(base)} {
		a, b := base[:n], slices.Clone(base)
		if got := CommonPrefix(a, b); got != n {
			t.Fatalf("equal runs of %d: %d", n, got)
		}
		for at := range n {
			for _, flip := range []uint64{1, 1 << 31, 1 << 32, 1 << 63} {
				b[at] ^= flip
				if got := CommonPrefix(a, b); got != at {
					t.Fatalf("runs of %d that differ at %d: %d", n, at, got)
				}
				b[at] ^= flip
			}
		}
	}
}

func FuzzCommonPrefix(f *testing.F) {
	f.Add([]byte("abcdefgh"), []byte("abcdefgi"))
	f.Fuzz(func(t *testing.T, x, y []byte) {
		a, b := words(x), words(y)
		if got, want := CommonPrefix(a, b), plain(a, b); got != want {
			t.Fatalf("%v, %v: %d, want %d", a, b, got, want)
		}
	})
}

func words(b []byte) []uint32 {
	out := make([]uint32, len(b)/4)
	for i := range out {
		out[i] = uint32(b[4*i]) | uint32(b[4*i+1])<<8 | uint32(b[4*i+2])<<16 | uint32(b[4*i+3])<<24
	}
	return out
}

func TestCommonPrefixDoesNotAllocate(t *testing.T) {
	a, b := make([]uint32, 5000), make([]uint32, 5000)
	if n := testing.AllocsPerRun(10, func() { CommonPrefix(a, b) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// BenchmarkCommonPrefix compares CommonPrefix with memequal over the same bytes.
func BenchmarkCommonPrefix(b *testing.B) {
	for _, n := range []int{16, 128, 4096, 131072} {
		x, y := make([]uint32, n), make([]uint32, n)
		b.Run(fmt.Sprintf("words=%d/by=prefix", n), func(b *testing.B) {
			b.SetBytes(int64(4 * n))
			for b.Loop() {
				if CommonPrefix(x, y) != n {
					b.Fatal("not equal")
				}
			}
		})
		b.Run(fmt.Sprintf("words=%d/by=memequal", n), func(b *testing.B) {
			b.SetBytes(int64(4 * n))
			for b.Loop() {
				if !equal(unsafe.Pointer(&x[0]), unsafe.Pointer(&y[0]), 0, n) {
					b.Fatal("not equal")
				}
			}
		})
		b.Run(fmt.Sprintf("words=%d/by=plain", n), func(b *testing.B) {
			b.SetBytes(int64(4 * n))
			for b.Loop() {
				if plain(x, y) != n {
					b.Fatal("not equal")
				}
			}
		})
	}
}
