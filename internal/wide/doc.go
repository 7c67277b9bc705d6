// Package wide owns the comparison of long runs of 32-bit values at the speed
// at which memory is read. It keeps nothing, allocates nothing, and is the
// one place of the core's that looks at slices as bytes.
//
// Every function is pure and may be called from any goroutine.
//
//	n := wide.CommonPrefix(edge, key) // edge[:n] equals key[:n], and no more does
package wide
