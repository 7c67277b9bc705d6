package openai

import (
	"math"
	"strconv"
	"unicode/utf8"
)

const hex = "0123456789abcdef"

// plain are the bytes that stand in a JSON string as they are.
var plain = func() (p [256]bool) {
	for c := ' '; c < utf8.RuneSelf; c++ {
		p[c] = c != '"' && c != '\\'
	}
	return p
}()

// appendString writes s as encoding/json does with SetEscapeHTML(false): what is not
// UTF-8 becomes \ufffd, once for each byte, and the line separators of JavaScript
// (U+2028 and U+2029) are escaped.
func appendString(dst []byte, s string) []byte { return append(appendText(append(dst, '"'), s), '"') }

// appendText is appendString without the quotes.
func appendText(dst []byte, s string) []byte {
	done := 0
	for i := 0; i < len(s); {
		c := s[i]
		if plain[c] {
			i++
			continue
		}
		if c < utf8.RuneSelf {
			dst = appendEscape(append(dst, s[done:i]...), c)
			i++
			done = i
			continue
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			dst = append(append(dst, s[done:i]...), `\ufffd`...)
			done = i + n
		case r == '\u2028' || r == '\u2029':
			dst = append(append(dst, s[done:i]...), `\u202`...)
			dst = append(dst, hex[r&0xf])
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
	return append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&0xf])
}

// appendOptional writes null for "".
func appendOptional(dst []byte, s string) []byte {
	if s == "" {
		return append(dst, "null"...)
	}
	return appendString(dst, s)
}

// leastLogprob stands for the logarithm of 0, which JSON has no number for, as in
// OpenAI's answers.
const leastLogprob = -9999

// appendLogprob writes f as encoding/json writes a float32.
func appendLogprob(dst []byte, f float32) []byte {
	v := float64(f)
	if math.IsNaN(v) || math.IsInf(v, 0) {
		v = leastLogprob
	}
	format := byte('f')
	if a := float32(math.Abs(v)); a != 0 && (a < 1e-6 || a >= 1e21) {
		format = 'e'
	}
	dst = strconv.AppendFloat(dst, v, format, -1, 32)
	if n := len(dst); format == 'e' && n >= 4 && dst[n-4] == 'e' && dst[n-2] == '0' {
		dst[n-2] = dst[n-1] // e-09 is e-9
		dst = dst[:n-1]
	}
	return dst
}

func appendInt(dst []byte, n int) []byte { return strconv.AppendInt(dst, int64(n), 10) }

// nan stands for no log-probability.
var nan = float32(math.NaN())
