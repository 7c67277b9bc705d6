package wide

import "unsafe"

// Word is a type that can be compared as plain 32-bit values.
type Word interface{ ~uint32 | ~int32 }

// Block sizes in words. Most runs are equal up to the end of the shorter one. The runtime's
// vectorised memequal finds that at the speed of memory, but it only reports whether two blocks are
// equal. So long blocks are compared first, of a size that can be read again from the first-level
// cache; within the first one that differs, short blocks are compared, and within that, few words.
const (
	longBlock  = 1024
	shortBlock = 64
	fewWords   = 8
)

// CommonPrefix returns the length of the common prefix of a and b, in words. It reads no word past the
// end of the shorter run.
func CommonPrefix[T Word](a, b []T) int {
	n := min(len(a), len(b))
	return commonPrefix(unsafe.Pointer(unsafe.SliceData(a)), unsafe.Pointer(unsafe.SliceData(b)), n)
}

// commonPrefix compares n words at p and q. Siblings in a tree often differ in their first words, so
// these are compared before memequal is called.
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

// pass skips equal blocks of words [at, end) and returns the range of the first block that differs, or
// the empty range at end.
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

// inPairs returns where the first difference in words [at, end) is, end if nowhere.
func inPairs(p, q unsafe.Pointer, at, end int) int {
	for end-at >= 2 && diff(p, q, at) == 0 {
		at += 2
	}
	if at < end && *(*uint32)(unsafe.Add(p, wordBytes*at)) == *(*uint32)(unsafe.Add(q, wordBytes*at)) {
		at++
	}
	return at
}

// diff is zero if words at and at+1 are equal.
func diff(p, q unsafe.Pointer, at int) uint64 {
	return *(*uint64)(unsafe.Add(p, wordBytes*at)) ^ *(*uint64)(unsafe.Add(q, wordBytes*at))
}

// equal compares n words from word at on. Go compares strings by memequal; a slice can be viewed as a
// string without a copy.
func equal(p, q unsafe.Pointer, at, n int) bool {
	return unsafe.String((*byte)(unsafe.Add(p, wordBytes*at)), wordBytes*n) ==
		unsafe.String((*byte)(unsafe.Add(q, wordBytes*at)), wordBytes*n)
}
