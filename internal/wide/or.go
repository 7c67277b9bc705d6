package wide

import "unsafe"

// Or returns the bitwise or of all words of s, 0 if s is empty. It takes little more time than reading
// s.
func Or[T Word](s []T) (bits T) {
	if len(s) >= 16 {
		return T(orMany(asWords(s)))
	}
	for _, w := range s {
		bits |= w
	}
	return bits
}

// orMany computes Or over several words at a time.
func orMany(s []uint32) uint32 {
	var a, b, c, d uint64
	if len(s) > 0 && uintptr(unsafe.Pointer(unsafe.SliceData(s)))%8 != 0 {
		a, s = uint64(s[0]), s[1:]
	}
	var pairs []uint64
	if len(s) >= 2 { // a *uint64 to a single word would reach past its memory
		pairs = unsafe.Slice((*uint64)(unsafe.Pointer(unsafe.SliceData(s))), len(s)/2)
	}
	for len(pairs) >= 8 {
		p := (*[8]uint64)(pairs)
		a |= p[0] | p[4]
		b |= p[1] | p[5]
		c |= p[2] | p[6]
		d |= p[3] | p[7]
		pairs = pairs[8:]
	}
	for _, p := range pairs {
		a |= p
	}
	if len(s)%2 != 0 {
		b |= uint64(s[len(s)-1])
	}
	a |= b | c | d
	return uint32(a) | uint32(a>>32)
}
