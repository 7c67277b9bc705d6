package openai

import (
	"encoding/binary"
	"math"
	"math/bits"
	"slices"

	"github.com/coppice-llm/coppice/internal/jsonbody"
	"github.com/coppice-llm/coppice/kv"
)

// scanIDs appends token ids to dst until dst has as many as most says. The scanner must be after the
// opening bracket of their array, and is then after the array. truncated reports that the array
// has more ids. odd is the first element that is not a token id, nil if there is none; scanIDs appends
// nothing after it.
func scanIDs(s *scanner, dst []kv.Token, most int) (_ []kv.Token, truncated bool, odd []byte) {
	if s.Next() == ']' {
		s.At++
		return dst, false, nil
	}
	for len(dst) < most {
		dst = slices.Grow(dst, 1)
		n, at, ok := readIDs(dst[len(dst):min(cap(dst), most)], s.B, s.At)
		if dst, s.At = dst[:len(dst)+n], at; ok {
			continue
		}
		if s.Next() == 0 {
			s.Broken = true
			return dst, false, nil
		}
		raw, _ := s.Skip()
		id, ok := jsonbody.Whole(raw)
		if !ok || id < 0 || id > math.MaxUint32 {
			s.At = at
			s.Leave(1)
			return dst, false, raw
		}
		dst = append(dst, kv.Token(id))
		end := s.Next()
		if end != ']' && end != ',' {
			s.Broken = true
			return dst, false, nil
		}
		if s.At++; end == ']' {
			return dst, false, nil
		}
	}
	s.Leave(1)
	return dst, true, nil
}

// readIDs fills dst with the ids at b[i:] that have one to seven digits and are followed by a comma
// and optionally a space. It returns their number n and the start at of the next element. ok is
// false if that element may be the last one of the array, or is one that readIDs can't read.
//
// If the start of each id were computed from the length of the id before it, that dependency chain
// would dominate the time. So readIDs locates commas 64 bytes at a time, by the two bits that
// distinguish them from digits and spaces. It detects a byte that has these bits but is not a
// comma afterwards.
func readIDs(dst []kv.Token, b []byte, i int) (n, at int, ok bool) {
	for base := i; base+72 <= len(b); base += 64 {
		var commas uint64 // one bit per byte
		block := b[base : base+64]
		for k := 0; k < 64; k += 8 {
			w := binary.LittleEndian.Uint64(block[k:])
			commas |= (^w & (w << 1) & (0x10 * ones)) >> 4 * gather >> 56 << k
		}
		for ; commas != 0; commas &= commas - 1 {
			end := base + bits.TrailingZeros64(commas)
			if n == len(dst) {
				return n, i, true
			}
			if b[i] == ' ' {
				i++
			}
			id, ok := shortID(binary.LittleEndian.Uint64(b[i:]), uint(end-i))
			if !ok || b[end] != ',' {
				return n, i, false
			}
			dst[n] = id
			n, i = n+1, end+1
		}
	}
	for n < len(dst) && i+9 <= len(b) {
		if b[i] == ' ' {
			i++
		}
		w := binary.LittleEndian.Uint64(b[i:])
		size := uint(bits.TrailingZeros64(^w&(0x10*ones))) >> 3
		id, ok := shortID(w, size)
		if !ok || b[i+int(size)] != ',' {
			return n, i, false
		}
		dst[n] = id
		n, i = n+1, i+int(size)+1
	}
	return n, i, n == len(dst)
}

const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
)

// gather moves the lowest bits of eight bytes into the top byte by a multiplication.
const gather = 0x0102040810204080

// shortID returns the id that the first size bytes of w denote, all digits. It returns false if
// there is another byte among them, or if size is not 1 to 7. The digits are shifted to the upper
// end of the word, preceded by zeros, and added in pairs.
//
// Source of the arithmetic: Lemire, "Quickly parsing eight digits" (2018).
func shortID(w uint64, size uint) (kv.Token, bool) {
	const zeros, sevens, tens = '0' * ones, 0x7f * ones, 0x76 * ones
	d := (w ^ zeros) << ((64 - 8*size) & 63) // digits become 0 to 9
	other := ((d&sevens + tens) | d) & highs // marks bytes of 10 and more
	d = d*10 + d>>8
	d = (d&0x000000FF000000FF*0x000F424000000064 + d>>16&0x000000FF000000FF*0x0000271000000001) >> 32
	return kv.Token(d), size-1 < 7 && other == 0
}
