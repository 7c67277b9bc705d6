package chat

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// tokenKind is the kind of a template's token.
type tokenKind uint8

const (
	tokEnd tokenKind = iota
	tokData
	tokBlockBegin // {%
	tokBlockEnd
	tokPrintBegin // {{
	tokPrintEnd
	tokName
	tokString // text is the value
	tokInteger
	tokFloat
	tokOperator
)

type token struct {
	kind tokenKind
	text string
	line int
}

// lexer splits a template into tokens, with trim_blocks and lstrip_blocks on (jinja2,
// lexer.py).
type lexer struct {
	source string
	at     int
	line   int
	fresh  bool // the previous tag ended a line, or there was none
	tokens []token
}

func lex(source string) ([]token, error) {
	l := &lexer{source: unifyLines(source), line: 1, fresh: true}
	for l.at < len(l.source) {
		if err := l.data(); err != nil {
			return nil, err
		}
	}
	l.add(tokEnd, "")
	return l.tokens, nil
}

// unifyLines converts line ends to \n and removes the last one.
func unifyLines(s string) string {
	s = strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(s)
	return strings.TrimSuffix(s, "\n")
}

func (l *lexer) add(kind tokenKind, text string) {
	l.tokens = append(l.tokens, token{kind, text, l.line})
}

func (l *lexer) skip(n int) string {
	s := l.source[l.at : l.at+n]
	l.at += n
	l.line += strings.Count(s, "\n")
	return s
}

func (l *lexer) fail(format string, args ...any) error {
	return syntaxError(l.line, format, args...)
}

func syntaxError(line int, format string, args ...any) error {
	return fmt.Errorf("%w: line %d: %s", ErrInvalid, line, fmt.Sprintf(format, args...))
}

// data reads the text up to the next tag, and that tag.
func (l *lexer) data() error {
	rest := l.source[l.at:]
	n := nextTag(rest)
	text := rest[:n]
	if n == len(rest) {
		if text != "" {
			l.add(tokData, text)
		}
		l.skip(n)
		return nil
	}
	kind, sign := rest[n+1], byte(0)
	width := 2
	if n+2 < len(rest) && (rest[n+2] == '-' || rest[n+2] == '+') {
		sign, width = rest[n+2], 3
	}
	kept := text
	switch {
	case sign == '-':
		kept = strings.TrimRightFunc(text, isSpace)
	case sign != '+' && kind != '{':
		start := strings.LastIndexByte(text, '\n') + 1
		if (start > 0 || l.fresh) && strings.TrimFunc(text[start:], isSpace) == "" {
			kept = text[:start]
		}
	}
	if kept != "" {
		l.add(tokData, kept)
	}
	l.skip(n)
	return l.tag(kind, width)
}

// nextTag returns the offset of the next {%, {{ or {#, len(s) if there is none.
func nextTag(s string) int {
	for from := 0; ; from++ {
		i := strings.IndexByte(s[from:], '{')
		if i < 0 {
			return len(s)
		}
		from += i
		if from+1 < len(s) && strings.IndexByte("%{#", s[from+1]) >= 0 {
			return from
		}
	}
}

func (l *lexer) tag(kind byte, width int) error {
	switch kind {
	case '#':
		end := strings.Index(l.source[l.at+2:], "#}")
		if end < 0 {
			return l.fail("a comment without an end")
		}
		l.skip(2)
		l.endTag(end, "#}")
		return nil
	case '{':
		l.add(tokPrintBegin, "{{")
		l.skip(width)
		return l.expression("}}", tokPrintEnd)
	}
	if body, n := l.rawBlock(width); n > 0 {
		return l.raw(body, n)
	}
	l.add(tokBlockBegin, "{%")
	l.skip(width)
	return l.expression("%}", tokBlockEnd)
}

// endTag skips the last n bytes of a tag and the closing mark. It also skips the white space
// after the mark if the byte before the mark is "-", or one line break for trim_blocks, unless
// that byte is "+" or the mark is }}.
func (l *lexer) endTag(n int, mark string) {
	sign := byte(0)
	if n > 0 {
		sign = l.source[l.at+n-1]
	}
	l.skip(n + len(mark))
	before := l.at
	switch {
	case sign == '-':
		rest := l.source[l.at:]
		l.skip(len(rest) - len(strings.TrimLeftFunc(rest, isSpace)))
	case sign != '+' && mark != "}}":
		if strings.HasPrefix(l.source[l.at:], "\n") {
			l.skip(1)
		}
	}
	l.fresh = l.at > before && l.source[l.at-1] == '\n'
}

// rawBlock recognises {% raw %} at l.at. n is the offset of its %} from l.at, or 0 for other
// tags. sign is '-' if a minus precedes the %}, else 0. width is the length of the tag's opening
// mark.
func (l *lexer) rawBlock(width int) (sign byte, n int) {
	rest := l.source[l.at:]
	after := strings.TrimLeftFunc(rest[width:], isSpace)
	if !strings.HasPrefix(after, "raw") {
		return 0, 0
	}
	after = strings.TrimLeftFunc(after[3:], isSpace)
	if strings.HasPrefix(after, "-") {
		sign, after = '-', after[1:]
	}
	if !strings.HasPrefix(after, "%}") {
		return 0, 0
	}
	return sign, len(rest) - len(after)
}

// raw reads {% raw %}...{% endraw %} as data. sign and n are those that rawBlock returned.
func (l *lexer) raw(sign byte, n int) error {
	l.skip(n + 2)
	if sign == '-' {
		rest := l.source[l.at:]
		l.skip(len(rest) - len(strings.TrimLeftFunc(rest, isSpace)))
	}
	rest := l.source[l.at:]
	for from := 0; ; {
		i := strings.Index(rest[from:], "{%")
		if i < 0 {
			return l.fail("raw without endraw")
		}
		i += from
		from = i + 2
		after := rest[from:]
		trim := strings.HasPrefix(after, "-")
		keep := strings.HasPrefix(after, "+")
		if trim || keep {
			after = after[1:]
		}
		after = strings.TrimLeftFunc(after, isSpace)
		if !strings.HasPrefix(after, "endraw") {
			continue
		}
		after = strings.TrimLeftFunc(after[len("endraw"):], isSpace)
		if !strings.HasPrefix(strings.TrimLeft(after, "-+"), "%}") {
			continue
		}
		text := rest[:i]
		if trim {
			text = strings.TrimRightFunc(text, isSpace)
		} else if start := strings.LastIndexByte(text, '\n') + 1; !keep && start > 0 && strings.TrimFunc(text[start:], isSpace) == "" {
			text = text[:start]
		}
		if text != "" {
			l.add(tokData, text)
		}
		l.endTag(len(rest)-len(after)+strings.Index(after, "%}"), "%}")
		return nil
	}
}

// expression reads the tokens of a tag up to mark, for which it adds a token of kind end. Inside
// brackets mark does not count as the end of the tag.
func (l *lexer) expression(mark string, end tokenKind) error {
	var open []byte
	for l.at < len(l.source) {
		rest := l.source[l.at:]
		if len(open) == 0 {
			n := 0
			if rest[0] == '-' || rest[0] == '+' && mark == "%}" {
				n = 1
			}
			if strings.HasPrefix(rest[n:], mark) {
				l.add(end, mark)
				l.endTag(n, mark)
				return nil
			}
		}
		c, n := utf8.DecodeRuneInString(rest)
		switch {
		case isSpace(c):
			l.skip(n)
		case c == '\'' || c == '"':
			if err := l.quoted(rest, byte(c)); err != nil {
				return err
			}
		case '0' <= c && c <= '9':
			if err := l.number(rest); err != nil {
				return err
			}
		case c == '_' || unicode.IsLetter(c):
			n := strings.IndexFunc(rest, func(c rune) bool { return c != '_' && !unicode.IsLetter(c) && !unicode.IsDigit(c) })
			if n < 0 {
				n = len(rest)
			}
			l.add(tokName, rest[:n])
			l.skip(n)
		default:
			op := operator(rest)
			if op == "" {
				return l.fail("unexpected character %q", c)
			}
			var err error
			if open, err = l.bracket(open, op); err != nil {
				return err
			}
			l.add(tokOperator, op)
			l.skip(len(op))
		}
	}
	return l.fail("a tag without its end %s", mark)
}

func (l *lexer) bracket(open []byte, op string) ([]byte, error) {
	switch op {
	case "(", "[", "{":
		return append(open, op[0]), nil
	case ")", "]", "}":
		want := map[string]byte{")": '(', "]": '[', "}": '{'}[op]
		if len(open) == 0 || open[len(open)-1] != want {
			return nil, l.fail("unexpected %q", op)
		}
		return open[:len(open)-1], nil
	}
	return open, nil
}

// operators, longer ones first.
var operators = []string{
	"**", "//", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[", "]", "(", ")", "{", "}", ">", "<", "=", ".", ":", "|", ",",
}

func operator(s string) string {
	for _, op := range operators {
		if strings.HasPrefix(s, op) {
			return op
		}
	}
	return ""
}

func (l *lexer) number(rest string) error {
	isDigit := func(i int) bool { return i < len(rest) && '0' <= rest[i] && rest[i] <= '9' }
	digits := func(i int) int {
		for isDigit(i) || i < len(rest) && rest[i] == '_' && isDigit(i+1) {
			i++
		}
		return i
	}
	kind, n := tokInteger, digits(0)
	afterDot := l.at > 0 && l.source[l.at-1] == '.' // in a.0.1 there is no number 0.1
	if n < len(rest) && rest[n] == '.' && isDigit(n+1) && !afterDot {
		kind, n = tokFloat, digits(n+1)
	}
	if n < len(rest) && (rest[n] == 'e' || rest[n] == 'E') {
		i := n + 1
		if i < len(rest) && (rest[i] == '+' || rest[i] == '-') {
			i++
		}
		if isDigit(i) {
			kind, n = tokFloat, digits(i)
		}
	}
	if n < len(rest) && (rest[n] == '_' || unicode.IsLetter(rune(rest[n]))) {
		return l.fail("a number followed by %q", rest[n])
	}
	if kind == tokInteger && rest[0] == '0' && strings.Trim(rest[:n], "0_") != "" {
		return l.fail("the number %s, which begins with 0", rest[:n])
	}
	l.add(kind, strings.ReplaceAll(rest[:n], "_", ""))
	l.skip(n)
	return nil
}

// quoted reads a string literal. rest is the source from the literal on, mark the quotation mark
// that it begins with.
func (l *lexer) quoted(rest string, mark byte) error {
	for i := 1; i < len(rest); i++ {
		switch rest[i] {
		case '\\':
			i++
		case mark:
			text, err := unescape(rest[1:i])
			if err != nil {
				return l.fail("%v", err)
			}
			l.add(tokString, text)
			l.skip(i + 1)
			return nil
		}
	}
	return l.fail("a string without an end")
}
