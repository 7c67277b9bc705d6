package wide

import "unsafe"

// Word is a type that can be compared as plain 32-bit values.
type Word interface{ ~uint32 | ~int32 }

// Sizes of the blocks that commonPrefix compares, in words. Most runs are equal up to the end of the
// shorter run. The runtime's vectorised memequal finds that at the speed of memory, but it only
// reports whether two blocks are equal, not where they differ. So commonPrefix compares long blocks
// first, short enough to be in the first-level cache when they are read again. It compares the first
// long block that differs by short blocks, and the first short block that differs by fewWords words.
const (
	longBlock  = 1024
	shortBlock = 64
	fewWords   = 8
)

// CommonPrefix returns the number of equal elements at the start of a and b. It reads nothing past the
// end of the shorter run.
func CommonPrefix[T Word | ~uint64](a, b []T) int {
	n, words := min(len(a), len(b)), int(unsafe.Sizeof(*new(T)))/wordBytes
	return commonPrefix(unsafe.Pointer(unsafe.SliceData(a)), unsafe.Pointer(unsafe.SliceData(b)), n*words) / words
}

// commonPrefix returns the number of equal words at the start of the n words at p and the n words at
// q. The edges of siblings in a tree often differ in their first words, so commonPrefix compares these
// before it calls memequal.
func commonPrefix(p, q unsafe.Pointer, n int) int {
	if n < fewWords || diff(p, q, 0) != 0 {
		return inPairs(p, q, 0, min(n, fewWords))
	}
	at, end := pass(p, q, 0, n, longBlock)
	if at == n {
		return n
	}
	if end-at > shortBlock {
		at, end = pass(p, q, at, end, shortBlock)
	}
	for end-at > fewWords && diff(p, q, at)|diff(p, q, at+2)|diff(p, q, at+4)|diff(p, q, at+6) == 0 {
		at += fewWords
	}
	return inPairs(p, q, at, min(end, at+fewWords))
}

// pass compares words [at, end) of p and q in blocks of block words. It returns the range of the first
// block that differs, or (end, end) if all are equal.
func pass(p, q unsafe.Pointer, at, end, block int) (int, int) {
	for at < end {
		next := min(at+block, end)
		if !equal(p, q, at, next-at) {
			return at, next
		}
		at = next
	}
	return end, end
}

// inPairs returns the index of the first word in [at, end) that differs between p and q, or end if all
// are equal. It compares two words at a time.
func inPairs(p, q unsafe.Pointer, at, end int) int {
	for end-at >= 2 && diff(p, q, at) == 0 {
		at += 2
	}
	if at < end && *(*uint32)(unsafe.Add(p, wordBytes*at)) == *(*uint32)(unsafe.Add(q, wordBytes*at)) {
		at++
	}
	return at
}

// diff returns zero if words [at, at+2) of p and q are equal.
func diff(p, q unsafe.Pointer, at int) uint64 {
	return *(*uint64)(unsafe.Add(p, wordBytes*at)) ^ *(*uint64)(unsafe.Add(q, wordBytes*at))
}

// equal reports whether words [at, at+n) of p and q are equal. It views them as strings, without a
// copy, because Go compares strings by memequal.
func equal(p, q unsafe.Pointer, at, n int) bool {
	return unsafe.String((*byte)(unsafe.Add(p, wordBytes*at)), wordBytes*n) ==
		unsafe.String((*byte)(unsafe.Add(q, wordBytes*at)), wordBytes*n)
}
