package parse

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf16"
)

// python turns the arguments of a call in Python, city="Paris", days=[1, 2.5], into a JSON object,
// byte by byte: keywords are keys; the values are strings, numbers, True, False, None, lists and
// dictionaries with strings as keys. It refuses all else.
//
// Source: The Python Language Reference, 2.5 Literals, and 6.2.5 to 6.2.7.
type python struct {
	out    []byte // the JSON text so far
	open   []byte // the brackets that are open; the first is that of the call
	state  pythonState
	key    bool   // the string or word being read is a key
	word   []byte // the number or word being read
	quote  byte   // the quote that ends the string being read
	escape escape
}

type pythonState uint8

const (
	pythonItem   pythonState = iota // before a member, or the closing bracket
	pythonColon                     // between a key and its value: = in a call
	pythonValue                     // before a value
	pythonNext                      // after a value
	pythonWord                      // inside a number or word
	pythonString                    // inside a string
)

// newPython returns a python after the opening bracket of a call.
func newPython() *python { return &python{out: []byte("{"), open: []byte("(")} }

// done reports whether the call has ended: out is complete.
func (y *python) done() bool { return len(y.open) == 0 }

// step reads a byte. It returns false if the byte does not fit.
func (y *python) step(c byte) bool {
	switch y.state {
	case pythonString:
		return y.inString(c)
	case pythonWord:
		if wordByte(c) {
			y.word = append(y.word, c)
			return len(y.word) <= maxWord
		}
		if !y.endWord() {
			return false
		}
	}
	if strings.IndexByte(spaces, c) >= 0 {
		return true
	}
	bracket := y.open[len(y.open)-1]
	switch y.state {
	case pythonItem:
		if closes(bracket, c) {
			return y.pop()
		}
		if last := y.out[len(y.out)-1]; last != '{' && last != '[' {
			y.out = append(y.out, ',')
		}
		switch y.key = bracket != '['; {
		case !y.key:
			return y.value(c)
		case bracket == '{':
			return (c == '"' || c == '\'') && y.value(c)
		}
		y.state, y.word = pythonWord, append(y.word[:0], c)
		return wordByte(c) && strings.IndexByte("+-.0123456789", c) < 0
	case pythonColon:
		y.state = pythonValue
		y.out = append(y.out, ':')
		return c == ':' && bracket == '{' || c == '=' && bracket == '('
	case pythonValue:
		y.key = false
		return y.value(c)
	}
	if c == ',' {
		y.state = pythonItem
		return true
	}
	return closes(bracket, c) && y.pop()
}

// maxWord bounds numbers and keywords.
const maxWord = 128

func closes(open, c byte) bool {
	return open == '(' && c == ')' || open == '[' && c == ']' || open == '{' && c == '}'
}

// pop reads a closing bracket.
func (y *python) pop() bool {
	last := len(y.open) - 1
	if y.open[last] == '[' {
		y.out = append(y.out, ']')
	} else {
		y.out = append(y.out, '}')
	}
	y.open, y.state = y.open[:last], pythonNext
	return true
}

// value reads the first byte of a value.
func (y *python) value(c byte) bool {
	switch {
	case c == '"' || c == '\'':
		y.state, y.quote = pythonString, c
		y.out = append(y.out, '"')
	case c == '[' || c == '{':
		y.state, y.open, y.out = pythonItem, append(y.open, c), append(y.out, c)
		return len(y.open) <= maxDepth
	default:
		y.state, y.word = pythonWord, append(y.word[:0], c)
		return wordByte(c)
	}
	return true
}

// wordByte reports whether c may be part of a number or a word.
func wordByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c >= 0x80 || strings.IndexByte("_+-.", c) >= 0
}

// endWord writes the word that was read. It returns false if the word is no value of JSON.
func (y *python) endWord() bool {
	word := string(y.word)
	if y.key {
		y.state = pythonColon
		y.out = append(append(append(y.out, '"'), word...), '"')
		return !strings.ContainsAny(word, "+-.")
	}
	y.state = pythonNext
	switch word {
	case "True", "true":
		word = "true"
	case "False", "false":
		word = "false"
	case "None", "null":
		word = "null"
	default:
		if word = number(word); word == "" {
			return false
		}
	}
	y.out = append(y.out, word...)
	return true
}

// number returns a number of Python as JSON writes it, "" if the word is none: JSON has no plus, no
// underscores, and digits on both sides of a point.
func number(word string) string {
	word = strings.TrimPrefix(strings.ReplaceAll(word, "_", ""), "+")
	sign := ""
	if rest, ok := strings.CutPrefix(word, "-"); ok {
		sign, word = "-", rest
	}
	if whole, fraction, ok := strings.Cut(word, "."); ok {
		if whole == "" {
			whole = "0"
		}
		if fraction == "" || lower(fraction[0]) == 'e' {
			fraction = "0" + fraction
		}
		word = whole + "." + fraction
	}
	if word == "" || word[0] < '0' || word[0] > '9' || !json.Valid([]byte(word)) {
		return ""
	}
	return sign + word
}

// inString reads a byte of a string.
func (y *python) inString(c byte) bool {
	switch text, again, ok := y.escape.step(c); {
	case !ok:
		return false
	case !again:
		y.out = append(y.out, text...)
		return true
	default:
		y.out = append(y.out, text...)
	}
	switch {
	case c == y.quote:
		y.out = append(y.out, '"')
		if y.state = pythonNext; y.key {
			y.state = pythonColon
		}
	case c == '"':
		y.out = append(y.out, `\"`...)
	case c < ' ': // Python allows no line breaks here, but models write them
		y.out = fmt.Appendf(y.out, `\u%04x`, c)
	default:
		y.out = append(y.out, c)
	}
	return true
}

// escape turns the escapes of a string in Python into those of JSON.
type escape struct {
	begun bool // after a backslash
	left  int  // digits that are still to come
	base  int32
	value int32
}

// step reads a byte of a string. It returns the JSON text for it, and reports in again whether
// the byte itself belongs to no escape.
func (e *escape) step(c byte) (text string, again, ok bool) {
	switch {
	case e.left > 0:
		if digit := int32(strings.IndexByte("0123456789abcdef", lower(c))); digit >= 0 && digit < e.base {
			if e.value, e.left = e.value*e.base+digit, e.left-1; e.left > 0 {
				return "", false, true
			}
			text, ok = e.end()
			return text, false, ok
		}
		if e.base == 16 {
			return "", false, false
		}
		text, ok = e.end()
		next, again, more := e.step(c)
		return text + next, again, ok && more
	case !e.begun && c == '\\':
		e.begun = true
		return "", false, true
	case !e.begun:
		return "", true, true
	}
	e.begun = false
	switch c {
	case 'n', 't', 'r', 'b', 'f', '\\', '"':
		return `\` + string(rune(c)), false, true
	case '\'':
		return "'", false, true
	case '\n':
		return "", false, true
	case 'a':
		return `\u0007`, false, true
	case 'v':
		return `\u000b`, false, true
	case 'x', 'u', 'U':
		e.left, e.base, e.value = map[byte]int{'x': 2, 'u': 4, 'U': 8}[c], 16, 0
		return "", false, true
	case '0', '1', '2', '3', '4', '5', '6', '7':
		e.left, e.base, e.value = 2, 8, int32(c-'0')
		return "", false, true
	}
	return `\\`, true, true // Python keeps the backslash of an escape that it doesn't know
}

func lower(c byte) byte {
	if c >= 'A' && c <= 'Z' {
		c += 'a' - 'A'
	}
	return c
}

// end returns the character whose number has been read.
func (e *escape) end() (text string, ok bool) {
	e.left = 0
	if e.value < 1<<16 {
		return fmt.Sprintf(`\u%04x`, e.value), e.value >= 0
	}
	high, low := utf16.EncodeRune(e.value)
	return fmt.Sprintf(`\u%04x\u%04x`, high, low), e.value <= 0x10ffff
}
