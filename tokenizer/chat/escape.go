package chat

import (
	"errors"
	"strconv"
	"strings"
	"unicode/utf8"
)

var plainEscapes = map[byte]string{
	'\n': "", '\\': `\`, '\'': "'", '"': `"`, 'a': "\a", 'b': "\b", 'f': "\f", 'n': "\n", 'r': "\r", 't': "\t", 'v': "\v",
}

// unescape returns the value of a Python string literal, given without its quotes. A backslash
// before any other character stays.
func unescape(s string) (string, error) {
	if !strings.Contains(s, `\`) {
		return s, nil
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' || i+1 == len(s) {
			b.WriteByte(s[i])
			continue
		}
		i++
		if plain, ok := plainEscapes[s[i]]; ok {
			b.WriteString(plain)
			continue
		}
		digits, base := 0, 16
		switch c := s[i]; {
		case c == 'x':
			digits = 2
		case c == 'u':
			digits = 4
		case c == 'U':
			digits = 8
		case '0' <= c && c <= '7':
			base = 8
			for digits < 3 && i+digits < len(s) && '0' <= s[i+digits] && s[i+digits] <= '7' {
				digits++
			}
			i--
		case c == 'N':
			return "", errors.New(`the escape \N is not supported`)
		default:
			b.WriteByte('\\')
			b.WriteByte(c)
			continue
		}
		if i+digits >= len(s) {
			return "", errors.New("a character's number is cut off")
		}
		code, err := strconv.ParseUint(s[i+1:i+1+digits], base, 32)
		if err != nil || !utf8.ValidRune(rune(code)) {
			return "", errors.New("no character has the number " + s[i+1:i+1+digits])
		}
		b.WriteRune(rune(code))
		i += digits
	}
	return b.String(), nil
}
