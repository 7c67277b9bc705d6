package wide

import (
	"math/bits"
	"unsafe"
)

// Word is what can be compared as plain 32-bit values.
type Word interface{ ~uint32 | ~int32 }

// Block sizes in words. Runs are compared by the runtime's vectorised memequal,
// which only says whether two blocks are equal. So blocks double while they are
// equal, up to 8 KiB; in the first that differs halves are tried, down to a few
// pairs of words. What is read twice comes from the nearest cache.
const (
	firstBlock = 64
	lastBlock  = 2048
	leastBlock = 16
)

// CommonPrefix is the length of the common prefix of a and b, in words.
func CommonPrefix[T Word](a, b []T) int {
	n := min(len(a), len(b))
	if n == 0 {
		return 0
	}
	return commonPrefix(unsafe.Pointer(unsafe.SliceData(a)), unsafe.Pointer(unsafe.SliceData(b)), n)
}

// commonPrefix compares n words at p and q.
func commonPrefix(p, q unsafe.Pointer, n int) int {
	at, block := 0, firstBlock
	for n-at >= block && equal(p, q, at, block) {
		at += block
		block = min(2*block, lastBlock)
	}
	// The difference, or the end, is less than a block away.
	end := min(n, at+block)
	for block = block / 2; block >= leastBlock; block /= 2 {
		if end-at >= block && equal(p, q, at, block) {
			at += block
		}
	}
	for ; end-at >= 2; at += 2 {
		if diff := *(*uint64)(unsafe.Add(p, 4*at)) ^ *(*uint64)(unsafe.Add(q, 4*at)); diff != 0 {
			return at + firstWord(diff)
		}
	}
	if at < end && *(*uint32)(unsafe.Add(p, 4*at)) == *(*uint32)(unsafe.Add(q, 4*at)) {
		at++
	}
	return at
}

// littleEndian tells in which half of a uint64 the first of two words lies.
var littleEndian = func() bool {
	words := [2]uint32{1, 0}
	return *(*uint64)(unsafe.Pointer(&words)) == 1
}()

// firstWord is 0 if the first of two words differs, else 1.
func firstWord(diff uint64) int {
	if littleEndian {
		return bits.TrailingZeros64(diff) / 32
	}
	return bits.LeadingZeros64(diff) / 32
}

// equal compares n words from word at on. Comparing strings is how Go reaches
// memequal without a copy.
func equal(p, q unsafe.Pointer, at, n int) bool {
	return unsafe.String((*byte)(unsafe.Add(p, 4*at)), 4*n) == unsafe.String((*byte)(unsafe.Add(q, 4*at)), 4*n)
}
