package offheap

import (
	"math"
	"testing"
)

func TestPagesDoNotOverlap(t *testing.T) {
	s, err := NewArena(64, 3)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for id := range 3 {
		page := s.Page(id)
		if len(page) != 64 || cap(page) != 64 {
			t.Fatalf("page %d: len %d cap %d", id, len(page), cap(page))
		}
		for i, b := range page {
			if b != 0 {
				t.Fatalf("page %d byte %d is %d at the start", id, i, b)
			}
			page[i] = byte(id + 1)
		}
	}
	for i, f := range s.F32() {
		b := uint32(i/16 + 1)
		if got := math.Float32bits(f); got != b|b<<8|b<<16|b<<24 {
			t.Fatalf("element %d has bits %x", i, got)
		}
	}
}

func TestNewRefusesSizes(t *testing.T) {
	for _, tc := range []struct{ bytes, pages int }{{0, 1}, {6, 1}, {64, 0}, {64, -1}, {1 << 28, math.MaxInt >> 20}} {
		if s, err := NewArena(tc.bytes, tc.pages); err == nil {
			s.Close()
			t.Errorf("NewArena(%d, %d) made a store", tc.bytes, tc.pages)
		}
	}
}

func TestCloseTwice(t *testing.T) {
	s, err := NewArena(64, 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}
