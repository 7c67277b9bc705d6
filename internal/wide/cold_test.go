package wide

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
	"unsafe"
)

// BenchmarkCommonPrefixCold compares equal runs at random places of two arrays of 160 MB, too large
// for the caches of a core. The place of the next run depends on the last word of the previous one,
// as in a walk down a tree, so that cache misses do not overlap. by=bytes is memequal over the same
// runs.
func BenchmarkCommonPrefixCold(b *testing.B) {
	const words = 160 << 20 / wordBytes
	x := make([]uint32, words)
	for i := range x {
		x[i] = uint32(i) * 2654435761 >> 8
	}
	y := append([]uint32(nil), x...)
	asBytes := func(s []uint32) []byte {
		return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), wordBytes*len(s))
	}
	ways := []struct {
		name  string
		equal func(p, q []uint32) bool
	}{
		{"prefix", func(p, q []uint32) bool { return CommonPrefix(p, q) == len(p) }},
		{"bytes", func(p, q []uint32) bool { return bytes.Equal(asBytes(p), asBytes(q)) }},
	}
	for _, n := range []int{16, 100, 1024, 4096} {
		for _, by := range ways {
			b.Run(fmt.Sprintf("words=%d/by=%s", n, by.name), func(b *testing.B) {
				rng := rand.New(rand.NewPCG(1, uint64(b.N)))
				b.SetBytes(int64(wordBytes * n))
				last := uint32(0)
				for b.Loop() {
					at := rng.IntN(words-n-1) + int(last>>31) // no word has the top bit
					if !by.equal(x[at:at+n], y[at:at+n]) {
						b.Fatal("not equal")
					}
					last = x[at+n-1]
				}
			})
		}
	}
}
