// Package wide owns the comparison of long runs of numbers at the speed of memory, and [Vec], which
// holds a run of 32-bit values in 16 bytes plus its array. It is the only package of the core that
// views slices as bytes. It never keeps a caller's slice and never interprets the values.
//
// An [Arena] allocates the arrays of many Vecs. A [Packed] is a Vec that needs no memory while its
// values are consecutive. [Or] combines the bits of all words, [Bytes] views the memory of a slice,
// and [As] views numbers under another type.
//
// CommonPrefix is pure and may be called from any goroutine. A Vec has one owner and no lock.
//
//	edge := wide.VecOf(tokens)                    // a copy
//	n := wide.CommonPrefix(edge.Slice(), key)     // edge[:n] equals key[:n], and no more does
//	tail := edge.CloneRange(n, edge.Len())        // a split
//	edge.Truncate(n)
package wide
