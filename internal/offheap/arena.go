package offheap

import (
	"fmt"
	"math"
	"unsafe"
)

// Arena is one block of memory for pages. Its memory is zero at the start.
type Arena struct {
	arena     []byte
	pageBytes int
}

// NewArena reserves pages*pageBytes bytes. pageBytes must be a multiple of 4, so that a page can
// be read as f32. It fails for invalid sizes and if there is not enough memory.
func NewArena(pageBytes, pages int) (*Arena, error) {
	switch {
	case pageBytes < 4 || pageBytes%4 != 0:
		return nil, fmt.Errorf("offheap: a page of %d bytes, want a positive multiple of 4", pageBytes)
	case pages < 1:
		return nil, fmt.Errorf("offheap: %d pages, want at least 1", pages)
	case pages > math.MaxInt/pageBytes:
		return nil, fmt.Errorf("offheap: %d pages of %d bytes exceed the address space", pages, pageBytes)
	}
	arena, err := Reserve(pages * pageBytes)
	if err != nil {
		return nil, fmt.Errorf("offheap: reserving %d pages of %d bytes (use a smaller pool): %w", pages, pageBytes, err)
	}
	return &Arena{arena: arena, pageBytes: pageBytes}, nil
}

// Bytes returns the size of the arena, 0 after Close.
func (s *Arena) Bytes() int64 { return int64(len(s.arena)) }

// Page returns the memory of one page, pageBytes long. It is valid until Close.
func (s *Arena) Page(page int) []byte {
	lo := page * s.pageBytes
	return s.arena[lo : lo+s.pageBytes : lo+s.pageBytes]
}

// F32 returns the whole arena as f32 elements; page p starts at p*pageBytes/4. It is valid until
// Close.
func (s *Arena) F32() []float32 {
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(s.arena))), len(s.arena)/4)
}

// Close frees the memory. Slices returned before must not be used after it.
func (s *Arena) Close() error {
	arena := s.arena
	s.arena = nil
	if arena == nil {
		return nil
	}
	return Release(arena)
}
