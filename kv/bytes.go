package kv

import "encoding/binary"

// AppendTokens appends tokens as little-endian u32, the form in which they are hashed and stored.
func AppendTokens(dst []byte, tokens []Token) []byte {
	for _, t := range tokens {
		dst = binary.LittleEndian.AppendUint32(dst, uint32(t))
	}
	return dst
}

// AppendMedia appends At, Tokens and Hash of each medium as little-endian u64.
func AppendMedia(dst []byte, media []Media) []byte {
	for _, m := range media {
		for _, n := range [...]uint64{uint64(m.At), uint64(m.Tokens), m.Hash} {
			dst = binary.LittleEndian.AppendUint64(dst, n)
		}
	}
	return dst
}
