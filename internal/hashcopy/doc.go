// Package hashcopy copies memory and computes the XXH3-64 of what it copies in the same
// pass. It owns nothing and keeps nothing. Any goroutine may call it.
//
//	sum = hashcopy.Copy(dst, src, sum) // len(src) is a multiple of PieceBytes
package hashcopy
