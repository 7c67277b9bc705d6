package wide

import (
	"fmt"
	"math"
	"unsafe"
)

// Vec is a slice in a quarter of a cache line: 16 bytes, where a Go slice has 24. It owns its array
// and has one owner itself: after an assignment only the copy may be used. The zero Vec is empty and
// holds no memory. A Vec has at most [math.MaxInt32] words; making one of more words panics.
type Vec[T Word] struct {
	data     *T    // typed, so that the collector sees it; nil exactly if capacity is 0
	len, cap int32 // 0 <= len <= cap
}

// VecOf returns a Vec with a copy of s. Its capacity is rounded up to the Go allocator's size class.
func VecOf[T Word](s []T) Vec[T] {
	fit(len(s))
	return adopt(append([]T(nil), s...))
}

// Len returns the number of words.
func (v *Vec[T]) Len() int { return int(v.len) }

// CapBytes returns the size of the array in bytes, spare capacity included.
func (v *Vec[T]) CapBytes() int { return wordBytes * int(v.cap) }

// Slice returns the words of v without a copy, nil if there are none. The slice is valid until the next
// Truncate of v. It has no spare capacity, so appending to it copies it.
func (v *Vec[T]) Slice() []T { return unsafe.Slice(v.data, int(v.len)) }

// CloneRange returns a Vec with a copy of words [lo, hi), 0 <= lo <= hi <= Len.
func (v *Vec[T]) CloneRange(lo, hi int) Vec[T] { return VecOf(v.Slice()[lo:hi]) }

// Truncate keeps the first n words and panics unless 0 <= n <= Len. If n is less than half of the
// capacity, it moves the n words to a new array, so that a few words do not keep a large array alive.
func (v *Vec[T]) Truncate(n int) {
	if 2*n < int(v.cap) || n > int(v.len) {
		v.move(n)
	}
	v.len = int32(n)
}

// move moves the first n words to a new array. It panics unless 0 <= n <= Len.
func (v *Vec[T]) move(n int) {
	if n < 0 || n > int(v.len) {
		panic(fmt.Sprintf("wide: truncate %d words to %d", v.len, n))
	}
	*v = v.CloneRange(0, n)
}

// adopt returns a Vec with the array of s, which the caller must no longer use. It limits the capacity
// to MaxInt32, because the size class of the longest arrays may have more words.
func adopt[T Word](s []T) Vec[T] {
	return Vec[T]{unsafe.SliceData(s), int32(len(s)), int32(min(cap(s), math.MaxInt32))}
}

// fit panics if n is more words than a Vec may have.
func fit(n int) {
	if n > math.MaxInt32 {
		panic(fmt.Sprintf("wide: %d words in a Vec, at most %d", n, math.MaxInt32))
	}
}

// wordBytes is the size of every [Word].
const wordBytes = 4
