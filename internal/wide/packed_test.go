package wide

import (
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"
)

// TestPackedAgainstSlice tests every method on lists that are consecutive, nearly so, and not at all.
func TestPackedAgainstSlice(t *testing.T) {
	if size := unsafe.Sizeof(Packed[int32]{}); size != 16 && unsafe.Sizeof(uintptr(0)) == 8 {
		t.Errorf("%d bytes", size)
	}
	rng := rand.New(rand.NewPCG(3, 4))
	packed := 0
	for range 3000 {
		s := make([]int32, rng.IntN(40))
		first := rng.Int32N(1000)
		for i := range s {
			s[i] = first + int32(i)
		}
		for range rng.IntN(3) {
			if len(s) > 0 {
				s[rng.IntN(len(s))]++
			}
		}
		p := PackedOf(s)
		if len(s) > 0 && p.packed() {
			packed++
		}
		lo := rng.IntN(len(s) + 1)
		hi := lo + rng.IntN(len(s)-lo+1)
		if p.Len() != len(s) || !slices.Equal(p.Slice(), s) || !slices.Equal(p.AppendTo([]int32{7}, lo)[1:], s[lo:]) {
			t.Fatalf("%v is %v", s, p.Slice())
		}
		for i, x := range s {
			if p.At(i) != x {
				t.Fatalf("%v has %d at %d", s, p.At(i), i)
			}
		}
		part := p.CloneRange(lo, hi)
		if !slices.Equal(part.Slice(), s[lo:hi]) {
			t.Fatalf("%v[%d:%d] is %v", s, lo, hi, part.Slice())
		}
		dst := make([]int32, rng.IntN(50))
		want := slices.Clone(dst)
		p.CopyTo(dst, lo)
		copy(want, s[lo:])
		if !slices.Equal(dst, want) {
			t.Fatalf("%v from %d copied: %v, want %v", s, lo, dst, want)
		}
		other := slices.Clone(s[lo:hi])
		if len(other) > 0 && rng.IntN(2) == 0 {
			other[rng.IntN(len(other))] ^= 1
		}
		if got, want := p.Same(other, lo), slices.Equal(other, s[lo:hi]); got != want {
			t.Fatalf("%v from %d same as %v: %v", s, lo, other, got)
		}
		if p.Truncate(hi); !slices.Equal(p.Slice(), s[:hi]) {
			t.Fatalf("%v cut to %d is %v", s, hi, p.Slice())
		}
	}
	if packed < 500 {
		t.Errorf("only %d lists were packed", packed)
	}
}
