package wide

import (
	"encoding/binary"
	"testing"
)

func TestBytesAreTheWords(t *testing.T) {
	words := count(100)
	for _, lo := range []int{0, 1, 7, 99} {
		s := words[lo:]
		b := Bytes(s)
		if len(b) != 4*len(s) || cap(b) != len(b) {
			t.Fatalf("%d bytes with room for %d, of %d words", len(b), cap(b), len(s))
		}
		for i, w := range s {
			if got := binary.NativeEndian.Uint32(b[4*i:]); got != w {
				t.Fatalf("word %d of [%d,100) is %d, want %d", i, lo, got, w)
			}
		}
	}
}

func TestBytesAreAView(t *testing.T) {
	words := []int32{1, -1, 3}
	b := Bytes(words)
	words[1] = -2
	if got := int32(binary.NativeEndian.Uint32(b[4:])); got != -2 {
		t.Errorf("a write of -2 shows as %d", got)
	}
	if n := testing.AllocsPerRun(100, func() { b = Bytes(words) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestBytesOfEmptySlice(t *testing.T) {
	for _, s := range [][]uint32{nil, {}, count(3)[3:], make([]uint32, 0, 5)} {
		if b := Bytes(s); len(b) != 0 || cap(b) != 0 {
			t.Errorf("%d bytes, room for %d", len(b), cap(b))
		}
	}
}
