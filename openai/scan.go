package openai

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"slices"
	"unicode/utf16"
	"unicode/utf8"
)

// scanner walks a JSON text that may be invalid. A fault that makes the end of values uncertain
// sets broken; other faults are skipped.
type scanner struct {
	b      []byte
	at     int
	broken bool
}

// next skips white space and returns the next byte, 0 at the end.
func (s *scanner) next() byte {
	for s.at < len(s.b) {
		switch c := s.b[s.at]; c {
		case ' ', '\t', '\n', '\r':
			s.at++
		default:
			return c
		}
	}
	return 0
}

// breaks records that the text is broken. It returns false, for use in a return.
func (s *scanner) breaks() bool {
	s.broken = true
	return false
}

// more moves to item i of an array or object, which ends with the byte end. i counts from 0, and
// the scanner must be after item i-1 or, for item 0, after the opening bracket. After the last
// item more moves past the end and returns false. It also returns false if the text is broken.
func (s *scanner) more(i int, end byte) bool {
	c := s.next()
	switch {
	case c == end:
		s.at++
		return false
	case i == 0:
		return c != 0 && !s.broken || s.breaks()
	case c != ',' || s.broken:
		return s.breaks()
	}
	s.at++
	c = s.next()
	return c != end && c != 0 || s.breaks()
}

// member moves to the value of member i of an object, as more does, and returns the member's name;
// ok is false after the last member.
func (s *scanner) member(i int) (name []byte, ok bool) {
	if !s.more(i, '}') {
		return nil, false
	}
	if s.b[s.at] != '"' {
		return nil, s.breaks()
	}
	name, escaped := s.quoted()
	if escaped || !utf8.Valid(name) {
		name = appendUnescaped(nil, name)
	}
	if s.next() != ':' {
		return nil, s.breaks()
	}
	s.at++
	return name, s.next() != 0 || s.breaks()
}

// quoted returns the bytes between the quotes of the string at s.at, and whether they contain
// escapes.
func (s *scanner) quoted() (raw []byte, escaped bool) {
	b := s.b[s.at+1:]
	end := bytes.IndexByte(b, '"')
	if end >= 0 {
		if first := bytes.IndexByte(b[:end], '\\'); first >= 0 {
			escaped, end = true, closing(b, first)
		}
	}
	if end < 0 {
		s.broken, s.at = true, len(s.b)
		return nil, false
	}
	s.at += end + 2
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

// skip returns the raw value at s.at, and whether it is a string with escapes.
func (s *scanner) skip() (raw []byte, escaped bool) {
	c := s.next()
	from := s.at
	switch c {
	case '"':
		_, escaped = s.quoted()
	case '{', '[':
		s.at++
		s.leave(1)
	default:
		for s.at < len(s.b) && !delimits(s.b[s.at]) {
			s.at++
		}
		if s.at == from {
			s.broken = true
		}
	}
	return s.b[from:s.at], escaped
}

func delimits(c byte) bool {
	switch c {
	case ',', '}', ']', ':', '"', '{', '[', ' ', '\t', '\n', '\r':
		return true
	}
	return false
}

// leave moves past the end of the arrays and objects that contain s.at: depth says how many levels
// to leave.
func (s *scanner) leave(depth int) {
	b := s.b
	for i := s.at; i < len(b); i++ {
		switch b[i] {
		case '"':
			s.at = i
			if s.quoted(); s.broken {
				return
			}
			i = s.at - 1
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				s.at = i + 1
				return
			}
		}
	}
	s.broken, s.at = true, len(b)
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
