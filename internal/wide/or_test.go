package wide

import (
	"math/rand/v2"
	"testing"
)

// TestOr compares Or with a loop, for all lengths and alignments around its block size.
func TestOr(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	words := make([]uint32, 64)
	for lo := range 4 {
		for n := range 50 {
			for i := range words {
				words[i] = 1 << rng.IntN(32) & rng.Uint32()
			}
			s, want := words[lo:lo+n], uint32(0)
			for _, w := range s {
				want |= w
			}
			if got := Or(s); got != want {
				t.Fatalf("%d words from %d: %x, want %x", n, lo, got, want)
			}
		}
	}
}
