package tokenizer

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/coppice-llm/coppice/kv"
)

// cutter is one step of the pre-tokenizer: it splits text into smaller pieces, or changes its
// beginning (huggingface/tokenizers, pre_tokenizers/).
type cutter struct {
	kind     cutKind
	known    splitter // cutKnown
	pattern  *pattern // cutPattern
	literal  string   // cutPattern without a pattern; cutMetaspace: the replacement of a space
	behavior behavior // cutPattern
	invert   bool     // cutPattern
	prepend  prepend  // cutMetaspace
	split    bool     // cutMetaspace: each replacement begins a piece
	single   bool     // cutDigits: each digit alone
}

type cutKind uint8

const (
	cutKnown     cutKind = iota // a hand-written splitter
	cutPattern                  // Split by an expression or a literal
	cutPrefix                   // a space before each piece: ByteLevel's add_prefix_space
	cutMetaspace                // spaces are replaced by a visible character
	cutDigits
)

// behavior selects how a Split treats the matches.
type behavior uint8

const (
	isolated behavior = iota
	removed
	mergedWithPrevious
	mergedWithNext
	contiguous
)

// prepend selects where Metaspace puts its replacement before a piece.
type prepend uint8

const (
	prependAlways prepend = iota
	prependFirst          // only at the beginning of the whole text
	prependNever
)

// cut splits text by the pre-tokenizers t.cutters[step:], in turn, encodes the resulting pieces
// and appends their tokens to dst. first reports whether text is the beginning of the text that
// the caller of Encode passed; s is scratch memory.
func (t *Tokenizer) cut(dst []kv.Token, step int, text string, first bool, s *scratch) []kv.Token {
	if text == "" {
		return dst
	}
	if step == len(t.cutters) {
		return t.encodePiece(dst, text, s)
	}
	c := &t.cutters[step]
	switch c.kind {
	case cutPrefix:
		if text[0] != ' ' {
			text = " " + text
		}
		return t.cut(dst, step+1, text, first, s)
	case cutPattern:
		return t.cutSpans(dst, step, text, first, s)
	case cutMetaspace:
		text = c.metaspace(text, first)
	}
	for text != "" && !s.stops(dst) {
		n := c.next(text)
		dst = t.cut(dst, step+1, text[:n], first, s)
		text, first = text[n:], false
	}
	return dst
}

// cutSpans is cut for a step of kind cutPattern: a Split by an expression or a literal.
func (t *Tokenizer) cutSpans(dst []kv.Token, step int, text string, first bool, s *scratch) []kv.Token {
	c := &t.cutters[step]
	own := allowance(len(text))
	j := joiner{source: source{text: text, literal: c.literal}, behavior: c.behavior, invert: c.invert}
	if c.pattern != nil {
		j.walk = c.pattern.walk(text, s.allowed(&own))
	}
	for !s.stops(dst) {
		at, ok := j.next()
		if !ok {
			break
		}
		dst = t.cut(dst, step+1, text[at.lo:at.hi], first && at.lo == 0, s)
	}
	return dst
}

// next returns the length of the first piece of text, for the kinds cutKnown, cutDigits and
// cutMetaspace. text must not be empty.
func (c *cutter) next(text string) int {
	switch c.kind {
	case cutKnown:
		return c.known.next(text)
	case cutDigits:
		return nextDigits(text, c.single)
	}
	if !c.split {
		return len(text)
	}
	start := 0
	if strings.HasPrefix(text, c.literal) {
		start = len(c.literal)
	}
	if n := strings.Index(text[start:], c.literal); n >= 0 {
		return start + n
	}
	return len(text)
}

// metaspace returns text with every space replaced by c.literal. It also puts c.literal before
// the text if c.prepend requires that and the text does not begin with it. first reports whether
// text is the beginning of the caller's text.
func (c *cutter) metaspace(text string, first bool) string {
	text = strings.ReplaceAll(text, " ", c.literal)
	if c.prepend == prependAlways || c.prepend == prependFirst && first {
		if !strings.HasPrefix(text, c.literal) {
			text = c.literal + text
		}
	}
	return text
}

// nextDigits returns the length of the first piece of text: a run of digits, or a run of other
// runes. With single set, each digit is a piece. Digits are the runes in Unicode's categories N,
// including fractions and letters used as numbers.
func nextDigits(text string, single bool) int {
	r, n := utf8.DecodeRuneInString(text)
	number := unicode.IsNumber(r)
	if number && single {
		return n
	}
	for n < len(text) {
		r, size := utf8.DecodeRuneInString(text[n:])
		if unicode.IsNumber(r) != number {
			break
		}
		n += size
	}
	return n
}
