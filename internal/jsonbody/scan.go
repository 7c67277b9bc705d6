package jsonbody

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"slices"
	"unicode/utf16"
	"unicode/utf8"
)

// Scanner walks a JSON text that may be invalid. A fault that makes the end of values uncertain
// sets broken; other faults are skipped.
type Scanner struct {
	B      []byte // the text
	At     int    // position in it
	Broken bool
}

// Next skips white space and returns the next byte, 0 at the end.
func (s *Scanner) Next() byte {
	for s.At < len(s.B) {
		switch c := s.B[s.At]; c {
		case ' ', '\t', '\n', '\r':
			s.At++
		default:
			return c
		}
	}
	return 0
}

// breaks records that the text is broken. It returns false, for use in a return.
func (s *Scanner) breaks() bool {
	s.Broken = true
	return false
}

// More moves to item i of an array or object, which ends with the byte end. i counts from 0, and
// the scanner must be after item i-1 or, for item 0, after the opening bracket. After the last
// item more moves past the end and returns false. It also returns false if the text is broken.
func (s *Scanner) More(i int, end byte) bool {
	c := s.Next()
	switch {
	case c == end:
		s.At++
		return false
	case i == 0:
		return c != 0 && !s.Broken || s.breaks()
	case c != ',' || s.Broken:
		return s.breaks()
	}
	s.At++
	c = s.Next()
	return c != end && c != 0 || s.breaks()
}

// member moves to the value of member i of an object, as more does, and returns the member's name;
// ok is false after the last member.
func (s *Scanner) member(i int) (name []byte, ok bool) {
	if !s.More(i, '}') {
		return nil, false
	}
	if s.B[s.At] != '"' {
		return nil, s.breaks()
	}
	name, escaped := s.Quoted()
	if escaped || !utf8.Valid(name) {
		name = appendUnescaped(nil, name)
	}
	if s.Next() != ':' {
		return nil, s.breaks()
	}
	s.At++
	return name, s.Next() != 0 || s.breaks()
}

// Quoted returns the bytes between the quotes of the string at s.At, and whether they contain
// escapes.
func (s *Scanner) Quoted() (raw []byte, escaped bool) {
	b := s.B[s.At+1:]
	end := bytes.IndexByte(b, '"')
	if end >= 0 {
		if first := bytes.IndexByte(b[:end], '\\'); first >= 0 {
			escaped, end = true, closing(b, first)
		}
	}
	if end < 0 {
		s.Broken, s.At = true, len(s.B)
		return nil, false
	}
	s.At += end + 2
	return b[:end], escaped
}

// closing returns the position in b of the quote that ends a string, -1 if the string does not
// end. The search begins at i, a position in the string outside of escapes.
func closing(b []byte, i int) int {
	for i <= len(b) {
		end := bytes.IndexByte(b[i:], '"')
		if end < 0 {
			break
		}
		for end += i; i <= end; i += 2 {
			next := bytes.IndexByte(b[i:end], '\\')
			if next < 0 {
				return end
			}
			i += next
		}
	}
	return -1
}

// Skip returns the raw value at s.At, and whether it is a string with escapes.
func (s *Scanner) Skip() (raw []byte, escaped bool) {
	c := s.Next()
	from := s.At
	switch c {
	case '"':
		_, escaped = s.Quoted()
	case '{', '[':
		s.At++
		s.Leave(1)
	default:
		for s.At < len(s.B) && !delimits(s.B[s.At]) {
			s.At++
		}
		if s.At == from {
			s.Broken = true
		}
	}
	return s.B[from:s.At], escaped
}

func delimits(c byte) bool {
	switch c {
	case ',', '}', ']', ':', '"', '{', '[', ' ', '\t', '\n', '\r':
		return true
	}
	return false
}

// Leave moves past the end of the arrays and objects that contain s.At: depth says how many levels
// to leave.
func (s *Scanner) Leave(depth int) {
	b := s.B
	for i := s.At; i < len(b); i++ {
		switch b[i] {
		case '"':
			s.At = i
			if s.Quoted(); s.Broken {
				return
			}
			i = s.At - 1
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				s.At = i + 1
				return
			}
		}
	}
	s.Broken, s.At = true, len(b)
}

// appendUnescaped appends the text of a JSON string, given without its quotes, as encoding/json
// decodes it: invalid UTF-8 and unpaired surrogates become U+FFFD. A backslash before a
// character that can't be escaped is dropped.
func appendUnescaped(dst, raw []byte) []byte {
	if !utf8.Valid(raw) {
		raw = bytes.Map(func(r rune) rune { return r }, raw) // leaves the escapes unchanged
	}
	dst = slices.Grow(dst, len(raw)) // an escape is at least as long as its text
	for {
		n := bytes.IndexByte(raw, '\\')
		if n < 0 {
			return append(dst, raw...)
		}
		dst, raw = append(dst, raw[:n]...), raw[n:]
		if len(raw) < 2 {
			return dst
		}
		c := raw[1]
		if r, n := escapedRune(raw); n > 0 {
			dst, raw = utf8.AppendRune(dst, r), raw[n:]
		} else if c >= utf8.RuneSelf { // the backslash precedes a multi-byte rune
			raw = raw[1:]
		} else {
			dst, raw = append(dst, cmp.Or(escapes[c], c)), raw[2:]
		}
	}
}

// escapes maps letters to the control characters that they denote.
var escapes = [utf8.RuneSelf]byte{'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}

// escapedRune returns the rune of the escape \uXXXX, or of a surrogate pair of two escapes, with
// which raw begins, and its length n in bytes. n is 0 if raw does not begin with an escape.
func escapedRune(raw []byte) (r rune, n int) {
	r = fourHex(raw)
	if r < 0 {
		return 0, 0
	}
	if !utf16.IsSurrogate(r) {
		return r, 6
	}
	if pair := utf16.DecodeRune(r, fourHex(raw[6:])); pair != utf8.RuneError {
		return pair, 12
	}
	return utf8.RuneError, 6
}

// fourHex returns the number in \uXXXX, -1 if raw does not begin with one.
func fourHex(raw []byte) rune {
	if len(raw) < 6 || raw[0] != '\\' || raw[1] != 'u' {
		return -1
	}
	var unit [2]byte
	if _, err := hex.Decode(unit[:], raw[2:6]); err != nil {
		return -1
	}
	return rune(binary.BigEndian.Uint16(unit[:]))
}
