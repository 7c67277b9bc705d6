// Package wide owns the comparison of long runs of 32-bit values at the speed
// at which memory is read, and [Vec], which holds such a run in 16 bytes beside
// its array. It is the one place of the core's that looks at slices as bytes.
// It never keeps a caller's slice and never knows what the values mean.
//
// An [Arena] is memory for the arrays of many Vecs. [Packed] is a Vec that takes no memory while its values follow on each other,
// [Or] the bits of all words, [Bytes] a view of the memory, [As] one of numbers under another type.
//
// CommonPrefix is pure and may be called from any goroutine. A Vec belongs to
// whoever holds it and is not locked.
//
//	edge := wide.VecOf(tokens)                    // a copy
//	n := wide.CommonPrefix(edge.Slice(), key)     // edge[:n] equals key[:n], and no more does
//	tail := edge.CloneRange(n, edge.Len())        // a split
//	edge.Truncate(n)
package wide
