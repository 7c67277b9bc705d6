package jsonschema

import (
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/coppice-llm/coppice/internal/bail"
	"github.com/coppice-llm/coppice/internal/runeset"
)

// The classes \d, \w and \s of ECMA-262.
var (
	digits = runeset.Set{{Lo: '0', Hi: '9'}}
	words  = runeset.Set{{Lo: '0', Hi: '9'}, {Lo: 'A', Hi: 'Z'}, {Lo: '_', Hi: '_'}, {Lo: 'a', Hi: 'z'}}
	spaces = runeset.Set{{Lo: '\t', Hi: '\r'}, {Lo: ' ', Hi: ' '}, {Lo: 0xA0, Hi: 0xA0}, {Lo: 0x1680, Hi: 0x1680},
		{Lo: 0x2000, Hi: 0x200A}, {Lo: 0x2028, Hi: 0x2029}, {Lo: 0x202F, Hi: 0x202F}, {Lo: 0x205F, Hi: 0x205F},
		{Lo: 0x3000, Hi: 0x3000}, {Lo: 0xFEFF, Hi: 0xFEFF}}
)

// escape parses an escape after its backslash and returns its runes. inClass reports that the
// escape is in brackets, where \b is a backspace.
func (p *patternParser) escape(inClass bool) runeset.Set {
	if p.rest == "" {
		p.fault(`a \ at the end`)
	}
	c := p.rest[0]
	switch {
	case c == 'b' && inClass:
		c = '\b'
	case c == 'b' || c == 'B':
		lacks("word boundaries")
	case c >= '1' && c <= '9' || c == 'k':
		lacks("references to groups")
	}
	switch c {
	case 'd', 'w', 's', 'D', 'W', 'S':
		p.rest = p.rest[1:]
		return named(c)
	case 'p', 'P':
		p.rest = p.rest[1:]
		return p.property(c == 'P')
	case 'u', 'x':
		p.rest = p.rest[1:]
		return p.hex(c)
	case 'c':
		if len(p.rest) < 2 || !isLetter(p.rest[1]) {
			p.fault(`\c without a letter`)
		}
		r := rune(p.rest[1] % 32)
		p.rest = p.rest[2:]
		return runeset.One(r)
	}
	r := p.rune()
	switch {
	case c == '\b':
		r = '\b'
	case controls[c] != 0:
		r = controls[c] - 1
	case isLetter(c):
		bail.Out(syntaxError{`no escape \` + string(r)})
	}
	return runeset.One(r)
}

// controls maps a letter to the control character that it escapes, plus 1; 0 means none.
var controls = [256]rune{'t': '\t' + 1, 'n': '\n' + 1, 'v': '\v' + 1, 'f': '\f' + 1, 'r': '\r' + 1, '0': 1}

func isLetter(c byte) bool { return c|' ' >= 'a' && c|' ' <= 'z' }

// named returns the class \d, \w or \s, or for an upper-case letter its complement.
func named(c byte) runeset.Set {
	set := map[byte]runeset.Set{'d': digits, 'w': words, 's': spaces}[c|' ']
	if c&' ' == 0 {
		return set.Complement()
	}
	return set
}

// hex parses the digits of \xhh or \uhhhh, \u{h…}, or two \u that form a surrogate pair. c is the
// letter x or u, which has been parsed.
func (p *patternParser) hex(c byte) runeset.Set {
	if c == 'u' && p.cut("{") {
		code, rest, ok := strings.Cut(p.rest, "}")
		if !ok {
			p.fault(`\u{ without }`)
		}
		v, err := strconv.ParseUint(code, 16, 32)
		if err != nil || v > utf8.MaxRune {
			p.fault(`\u{…} is no code point`)
		}
		p.rest = rest
		return runeset.One(rune(v))
	}
	r, ok := p.hexDigits(map[byte]int{'x': 2, 'u': 4}[c])
	if !ok {
		p.fault("hexadecimal digits are missing")
	}
	if utf16.IsSurrogate(r) {
		rest := p.rest
		if p.cut(`\u`) {
			if low, ok := p.hexDigits(4); ok && utf16.DecodeRune(r, low) != utf8.RuneError {
				return runeset.One(utf16.DecodeRune(r, low))
			}
		}
		p.rest = rest
	}
	return runeset.One(r)
}

func (p *patternParser) hexDigits(n int) (rune, bool) {
	if len(p.rest) < n {
		return 0, false
	}
	v, err := strconv.ParseUint(p.rest[:n], 16, 32)
	if err != nil {
		return 0, false
	}
	p.rest = p.rest[n:]
	return rune(v), true
}
