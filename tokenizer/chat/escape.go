package chat

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

var plainEscapes = map[byte]string{
	'\n': "", '\\': `\`, '\'': "'", '"': `"`, 'a': "\a", 'b': "\b", 'f': "\f", 'n': "\n", 'r': "\r", 't': "\t", 'v': "\v",
}

// pythonEscape matches an escape. The groups are the digits of a character's number, hexadecimal
// or octal.
var pythonEscape = regexp.MustCompile(`\\(?:(?:x([[:xdigit:]]{2})|u([[:xdigit:]]{4})|U([[:xdigit:]]{8}))|([0-7]{1,3})|(?s:.))`)

// unescape returns the value of a Python string literal, given without its quotes. A backslash
// before any other character stays.
func unescape(s string) (text string, err error) {
	text = pythonEscape.ReplaceAllStringFunc(s, func(escape string) string {
		m := pythonEscape.FindStringSubmatch(escape)
		digits, base := m[1]+m[2]+m[3], 16
		if m[4] != "" {
			digits, base = m[4], 8
		}
		plain, ok := plainEscapes[escape[1]]
		switch {
		case ok:
			return plain
		case escape == `\N`:
			err = errors.New(`the escape \N is not supported`)
		case digits == "" && strings.Contains("xuU", escape[1:]):
			err = errors.New("a character's number is cut off")
		case digits == "":
			return escape
		}
		code, fault := strconv.ParseUint(digits, base, 32)
		if err == nil && (fault != nil || !utf8.ValidRune(rune(code))) {
			err = fmt.Errorf("no character has the number %s", digits)
		}
		return string(rune(code))
	})
	return text, err
}
