package hashcopy

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/zeebo/xxh3"
)

// chain computes the result of Copy by package xxh3.
func chain(src []byte, seed uint64) uint64 {
	for ; len(src) > 0; src = src[PieceBytes:] {
		seed = xxh3.HashSeed(src[:PieceBytes], seed)
	}
	return seed
}

// TestCopy checks that exactly the given bytes are copied, and that the hash is that of xxh3, with any
// seed and alignment.
func TestCopy(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	src, dst := make([]byte, 2*PieceBytes+256), make([]byte, 2*PieceBytes+256)
	for i := range src {
		src[i] = byte(rng.Uint32())
	}
	for _, seed := range []uint64{0, 1, 1 << 63, rng.Uint64()} {
		for _, at := range []int{0, 1, 8, 63, 64} {
			for _, n := range []int{0, PieceBytes, 2 * PieceBytes} {
				clear(dst)
				from := src[at+7:][:n]
				if got, want := Copy(dst[at:], from, seed), chain(from, seed); got != want {
					t.Errorf("seed %x, at %d, %d bytes: %x, want %x", seed, at, n, got, want)
				}
				if !bytes.Equal(dst[at:][:n], from) {
					t.Errorf("at %d: the copy of %d bytes differs", at, n)
				}
				if n := len(bytes.Trim(dst[:at], "\x00")) + len(bytes.Trim(dst[at+n:], "\x00")); n != 0 {
					t.Errorf("at %d: %d bytes are written outside of the copy", at, n)
				}
			}
		}
	}
}

// FuzzCopy compares the kernel with xxh3.
func FuzzCopy(f *testing.F) {
	f.Add([]byte("seed"), uint64(7))
	f.Fuzz(func(t *testing.T, text []byte, seed uint64) {
		src, dst := make([]byte, PieceBytes), make([]byte, PieceBytes)
		for n := 0; n < len(src) && len(text) > 0; {
			n += copy(src[n:], text)
		}
		if got := Copy(dst, src, seed); got != chain(src, seed) || !bytes.Equal(dst, src) {
			t.Errorf("%x, want %x", got, chain(src, seed))
		}
	})
}
