// Package hashcopy copies memory and computes XXH3-64 of it in the same pass. It owns no state. Any
// goroutine may call it.
//
//	sum = hashcopy.Copy(dst, src, sum) // len(src) is a multiple of PieceBytes
package hashcopy
