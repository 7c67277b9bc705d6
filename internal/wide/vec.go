package wide

import (
	"fmt"
	"math"
	"unsafe"
)

// Vec is a slice that fits a quarter of a cache line: 16 bytes where a slice
// has 24. It owns its array, and a Vec has one owner: to assign it is to move
// it. The zero Vec is empty and holds no memory. At most [math.MaxInt32] words;
// one more panics.
type Vec[T Word] struct {
	data     *T    // typed, so that the collector sees it; nil exactly if capacity is 0
	len, cap int32 // 0 <= len <= cap
}

// VecOf copies s into an array of its own, with no more room than the
// allocator's size class gives.
func VecOf[T Word](s []T) Vec[T] {
	fit(len(s))
	return adopt(append([]T(nil), s...))
}

// Len is the number of words.
func (v *Vec[T]) Len() int { return int(v.len) }

// CapBytes is the memory held, in bytes, spare room included.
func (v *Vec[T]) CapBytes() int { return wordBytes * int(v.cap) }

// Slice is the words themselves, not a copy, nil if there are none. They belong
// to v and are valid until its next Truncate. There is no spare room
// behind them, so to append to the slice copies it.
func (v *Vec[T]) Slice() []T { return unsafe.Slice(v.data, int(v.len)) }

// CloneRange copies words [lo, hi), 0 <= lo <= hi <= Len, into a Vec of their own.
func (v *Vec[T]) CloneRange(lo, hi int) Vec[T] { return VecOf(v.Slice()[lo:hi]) }

// Truncate keeps the first n words, 0 <= n <= Len. If they are less than half
// of what there is room for they move to an array of their own, so that a few
// words do not keep the memory of many alive.
func (v *Vec[T]) Truncate(n int) {
	if 2*n < int(v.cap) || n > int(v.len) {
		v.move(n)
	}
	v.len = int32(n)
}

// move moves the first n words to an array of their own.
func (v *Vec[T]) move(n int) {
	if n < 0 || n > int(v.len) {
		panic(fmt.Sprintf("wide: truncate %d words to %d", v.len, n))
	}
	*v = v.CloneRange(0, n)
}

// adopt makes a Vec of a slice that nobody else holds. The size class of the
// longest arrays may have room for a word that is not countable.
func adopt[T Word](s []T) Vec[T] {
	return Vec[T]{unsafe.SliceData(s), int32(len(s)), int32(min(cap(s), math.MaxInt32))}
}

// fit panics if a Vec cannot count n words.
func fit(n int) {
	if n > math.MaxInt32 {
		panic(fmt.Sprintf("wide: %d words in a Vec, at most %d", n, math.MaxInt32))
	}
}

// wordBytes is the size of every [Word].
const wordBytes = 4
