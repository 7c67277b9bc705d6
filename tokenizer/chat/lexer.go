package chat

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/coppice-llm/coppice/internal/bail"
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

const (
	blank  = `[\t-\r\x1c-\x1f\x85\pZ]` // see isSpace
	digits = `\d+(?:_\d+)*`
)

// The tags and the tokens in them.
var (
	tagBegin = regexp.MustCompile(`\{[%{#]`)
	rawBegin = regexp.MustCompile(`^\{%[-+]?` + blank + `*raw` + blank + `*(-?)%\}`)
	rawEnd   = regexp.MustCompile(`\{%([-+]?)` + blank + `*endraw` + blank + `*[-+]*(%\})`)
	lexeme   = regexp.MustCompile(`^(?:(` + blank + `+)|([\pL_][\pL\p{Nd}_]*)` +
		`|(` + digits + `(?:\.` + digits + `)?(?:[eE][-+]?` + digits + `)?)` +
		`|('(?:[^'\\]|\\(?s:.))*'|"(?:[^"\\]|\\(?s:.))*")` +
		`|(!=|[<>=]=?|\*\*?|//?|[-+%~\[\](){}.:|,]))`)
)

// lexer splits a template into tokens, with trim_blocks and lstrip_blocks on (jinja2,
// lexer.py).
type lexer struct {
	source string
	at     int
	line   int
	fresh  bool // the previous tag ended a line, or there was none
	tokens []token
}

// lex returns the tokens of a template. Errors bail out.
func lex(source string) []token {
	l := &lexer{source: unifyLines(source), line: 1, fresh: true}
	for l.at < len(l.source) {
		l.data()
	}
	l.add(tokEnd, "")
	return l.tokens
}

// unifyLines converts line ends to \n and removes the last one.
func unifyLines(s string) string {
	s = strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(s)
	return strings.TrimSuffix(s, "\n")
}

// data reads the text up to the next tag, and that tag.
func (l *lexer) data() {
	rest := l.source[l.at:]
	tag := tagBegin.FindStringIndex(rest)
	if tag == nil {
		l.text(rest, '+', false)
		l.skip(len(rest))
		return
	}
	kind, sign, width := rest[tag[1]-1], byte(0), 2
	if after := rest[tag[1]:]; after != "" && (after[0] == '-' || after[0] == '+') {
		sign, width = after[0], 3
	}
	if kind == '{' && sign == 0 {
		sign = '+'
	}
	l.text(rest[:tag[0]], sign, l.fresh)
	l.skip(tag[0])
	l.tag(kind, width)
}

func (l *lexer) tag(kind byte, width int) {
	rest := l.source[l.at:]
	switch raw := rawBegin.FindStringSubmatchIndex(rest); {
	case kind == '#':
		end := strings.Index(rest[2:], "#}")
		if end < 0 {
			l.fail("a comment without an end")
		}
		l.skip(2)
		l.endTag(end, "#}")
	case kind == '{':
		l.add(tokPrintBegin, "{{")
		l.skip(width)
		l.expression("}}", tokPrintEnd)
	case raw != nil:
		l.raw(raw[1], raw[2] < raw[3])
	default:
		l.add(tokBlockBegin, "{%")
		l.skip(width)
		l.expression("%}", tokBlockEnd)
	}
}

// raw reads {% raw %}...{% endraw %} as data. begin is the length of the first tag, and trim
// reports whether it ends with -%}.
func (l *lexer) raw(begin int, trim bool) {
	l.skip(begin)
	if trim {
		l.skipSpace()
	}
	rest := l.source[l.at:]
	end := rawEnd.FindStringSubmatchIndex(rest)
	if end == nil {
		l.fail("raw without endraw")
	}
	sign := byte(0)
	if end[2] < end[3] {
		sign = rest[end[2]]
	}
	l.text(rest[:end[0]], sign, false)
	l.endTag(end[4], "%}")
}

// text adds a token for text. What comes before a tag loses its white space at the end if the
// tag's sign is '-'. Unless the sign is '+', it loses the blank beginning of the tag's line; fresh
// reports that text begins a line.
func (l *lexer) text(text string, sign byte, fresh bool) {
	start := strings.LastIndexByte(text, '\n') + 1
	switch {
	case sign == '-':
		text = strings.TrimRightFunc(text, isSpace)
	case sign != '+' && (start > 0 || fresh) && strings.TrimFunc(text[start:], isSpace) == "":
		text = text[:start]
	}
	if text != "" {
		l.add(tokData, text)
	}
}

// maxName bounds the names in a template, in bytes: to look one up is a single step.
const maxName = 256

// expression reads the tokens of a tag up to mark, for which it adds a token of kind end. Inside
// brackets mark does not count as the end of the tag.
func (l *lexer) expression(mark string, end tokenKind) {
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
				return
			}
		}
		m := lexeme.FindStringSubmatch(rest)
		switch {
		case m == nil && (rest[0] == '\'' || rest[0] == '"'):
			l.fail("a string without an end")
		case m == nil:
			c, _ := utf8.DecodeRuneInString(rest)
			l.fail("unexpected character %q", c)
		case len(m[2]) > maxName:
			bail.Out(fmt.Errorf("%w: line %d: a name of over %d bytes", ErrLimit, l.line, maxName))
		case m[2] != "":
			l.add(tokName, m[2])
		case m[3] != "":
			m[0] = l.number(m[3], rest)
		case m[4] != "":
			text, err := unescape(m[4][1 : len(m[4])-1])
			if err != nil {
				l.fail("%v", err)
			}
			l.add(tokString, text)
		case m[5] != "":
			open = l.bracket(open, m[5])
			l.add(tokOperator, m[5])
		}
		l.skip(len(m[0]))
	}
	l.fail("a tag without its end %s", mark)
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
		l.skipSpace()
	case sign != '+' && mark != "}}":
		if strings.HasPrefix(l.source[l.at:], "\n") {
			l.skip(1)
		}
	}
	l.fresh = l.at > before && l.source[l.at-1] == '\n'
}

func (l *lexer) skipSpace() {
	rest := l.source[l.at:]
	l.skip(len(rest) - len(strings.TrimLeftFunc(rest, isSpace)))
}

func (l *lexer) skip(n int) {
	l.line += strings.Count(l.source[l.at:l.at+n], "\n")
	l.at += n
}

func (l *lexer) bracket(open []byte, op string) []byte {
	switch op {
	case "(", "[", "{":
		return append(open, op[0])
	case ")", "]", "}":
		want := map[string]byte{")": '(', "]": '[', "}": '{'}[op]
		if len(open) == 0 || open[len(open)-1] != want {
			l.fail("unexpected %q", op)
		}
		return open[:len(open)-1]
	}
	return open
}

// number adds a token for the number literal that rest begins with, and returns its text.
func (l *lexer) number(literal, rest string) string {
	if l.at > 0 && l.source[l.at-1] == '.' { // in a.0.1 there is no number 0.1
		literal, _, _ = strings.Cut(literal, ".")
	}
	kind := tokInteger
	if strings.ContainsAny(literal, ".eE") {
		kind = tokFloat
	}
	if c, _ := utf8.DecodeRuneInString(rest[len(literal):]); c == '_' || unicode.IsLetter(c) {
		l.fail("a number followed by %q", c)
	}
	if kind == tokInteger && literal[0] == '0' && strings.Trim(literal, "0_") != "" {
		l.fail("the number %s, which begins with 0", literal)
	}
	l.add(kind, strings.ReplaceAll(literal, "_", ""))
	return literal
}

func (l *lexer) add(kind tokenKind, text string) {
	l.tokens = append(l.tokens, token{kind, text, l.line})
}

func (l *lexer) fail(format string, args ...any) { bail.Out(syntaxError(l.line, format, args...)) }

func syntaxError(line int, format string, args ...any) error {
	return fmt.Errorf("%w: line %d: %s", ErrInvalid, line, fmt.Sprintf(format, args...))
}
