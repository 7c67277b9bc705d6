// Package jsontext appends strings and numbers as JSON, in the format of encoding/json. It owns no
// state, parses nothing, and allocates only to grow the slice that it appends to.
package jsontext

import (
	"math"
	"strconv"
	"unicode/utf8"
)

// Hex holds the hexadecimal digits.
const Hex = "0123456789abcdef"

// plain reports for each ASCII byte whether it needs no escape in a string.
var plain = func() (p [utf8.RuneSelf]bool) {
	for c := ' '; c < utf8.RuneSelf; c++ {
		p[c] = c != '"' && c != '\\'
	}
	return p
}()

// AppendString appends s in quotes, as encoding/json with SetEscapeHTML(false) writes it: each byte
// that is not valid UTF-8 becomes \ufffd, and U+2028 and U+2029, which end lines in JavaScript, are
// escaped.
func AppendString(dst []byte, s string) []byte {
	return append(AppendText(append(dst, '"'), s), '"')
}

// AppendText is AppendString without the quotes.
func AppendText(dst []byte, s string) []byte {
	done := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c < utf8.RuneSelf {
			i++
			if !plain[c] {
				dst = appendEscape(append(dst, s[done:i-1]...), c)
				done = i
			}
			continue
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && n == 1 || r == '\u2028' || r == '\u2029' {
			dst = append(dst, s[done:i]...)
			dst = append(dst, '\\', 'u', Hex[r>>12&0xf], Hex[r>>8&0xf], Hex[r>>4&0xf], Hex[r&0xf])
			done = i + n
		}
		i += n
	}
	return append(dst, s[done:]...)
}

func appendEscape(dst []byte, c byte) []byte {
	switch c {
	case '"', '\\':
		return append(dst, '\\', c)
	case '\n':
		return append(dst, '\\', 'n')
	case '\r':
		return append(dst, '\\', 'r')
	case '\t':
		return append(dst, '\\', 't')
	case '\b':
		return append(dst, '\\', 'b')
	case '\f':
		return append(dst, '\\', 'f')
	}
	return append(dst, '\\', 'u', '0', '0', Hex[c>>4], Hex[c&0xf])
}

// AppendOptional is AppendString, but it appends null for "".
func AppendOptional(dst []byte, s string) []byte {
	if s == "" {
		return append(dst, "null"...)
	}
	return AppendString(dst, s)
}

// AppendInt appends n in decimal.
func AppendInt[T ~int | ~int64 | ~uint32 | ~uint64](dst []byte, n T) []byte {
	if n < 0 {
		return strconv.AppendInt(dst, int64(n), 10)
	}
	return strconv.AppendUint(dst, uint64(n), 10)
}

// AppendFloat appends f as encoding/json writes a float32. f must be finite.
func AppendFloat(dst []byte, f float32) []byte {
	format := byte('f')
	if a := float32(math.Abs(float64(f))); a != 0 && (a < 1e-6 || a >= 1e21) {
		format = 'e'
	}
	dst = strconv.AppendFloat(dst, float64(f), format, -1, 32)
	if n := len(dst); format == 'e' && n >= 4 && dst[n-4] == 'e' && dst[n-2] == '0' {
		dst[n-2] = dst[n-1] // e-09 is e-9
		dst = dst[:n-1]
	}
	return dst
}

// AppendList appends list as an array; item appends one element.
func AppendList[T any](dst []byte, list []T, item func(dst []byte, v T) []byte) []byte {
	return AppendArray(dst, len(list), func(dst []byte, i int) []byte { return item(dst, list[i]) })
}

// AppendArray appends an array of n elements; item appends element i.
func AppendArray(dst []byte, n int, item func(dst []byte, i int) []byte) []byte {
	dst = append(dst, '[')
	for i := range n {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = item(dst, i)
	}
	return append(dst, ']')
}
