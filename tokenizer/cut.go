package tokenizer

import (
	"strings"

	"github.com/coppice-llm/coppice/kv"
)

// cutter is one step of the pre-tokenizer: it splits text into smaller pieces, or changes its
// beginning (huggingface/tokenizers, pre_tokenizers/).
type cutter struct {
	kind     cutKind
	pattern  *pattern // cutPattern
	literal  string   // cutPattern without a pattern; cutMetaspace: the replacement of a space
	behavior behavior // cutPattern
	invert   bool     // cutPattern
	prepend  prepend  // cutMetaspace
}

type cutKind uint8

const (
	cutPattern   cutKind = iota // Split by an expression or a literal
	cutPrefix                   // a space before each piece: ByteLevel's add_prefix_space
	cutMetaspace                // spaces are replaced by a visible character
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
	switch {
	case c.kind == cutPattern:
		return t.cutSpans(dst, step, text, first, s)
	case c.kind == cutMetaspace:
		text = c.metaspace(text, first)
	case text[0] != ' ':
		text = " " + text
	}
	return t.cut(dst, step+1, text, first, s)
}

// cutSpans is cut for a step of kind cutPattern: a Split by an expression or a literal.
func (t *Tokenizer) cutSpans(dst []kv.Token, step int, text string, first bool, s *scratch) []kv.Token {
	if s.stops(dst) {
		return dst
	}
	last := step+1 == len(t.cutters)
	t.cutters[step].pieces(text, s, func(at span) bool {
		if last {
			dst = t.encodePiece(dst, text[at.lo:at.hi], s)
		} else {
			dst = t.cut(dst, step+1, text[at.lo:at.hi], first && at.lo == 0, s)
		}
		return !s.stops(dst)
	})
	return dst
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
