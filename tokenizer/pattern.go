package tokenizer

import (
	"strings"
	"unicode/utf8"

	"github.com/coppice-llm/coppice/internal/bail"
)

// pattern is a regular expression of a file. Such expressions need look-ahead, which Go's regexp
// package lacks, and a bound on the work, as files are untrusted.
type pattern struct {
	m *machine
	d *dfa // nil if m has none
}

// span is a range text[lo:hi]. If match is set, the expression matched it; else it is the text
// between two matches.
type span struct {
	lo, hi int
	match  bool
}

// maxPattern bounds the length of an expression in bytes; the longest in use have about 500.
const maxPattern = 8192

// newPattern compiles expr. Hugging Face's library uses Oniguruma with Ruby's syntax. Syntax that
// Oniguruma and this matcher treat differently is refused by name, and so are repetitions of
// groups that contain repetitions or alternatives, which may take exponential time on some text.
func newPattern(expr string) *pattern {
	if len(expr) > maxPattern {
		unsupported("a regular expression of %d bytes; supported are up to %d", len(expr), maxPattern)
	}
	m, err := newMachine(expr)
	if err != nil {
		unsupported("regular expression %q: %w; supported are expressions without it", expr, err)
	}
	return &pattern{m, newDFA(m)}
}

// Pieces cuts text as the pre-tokenizer Split of a tokenizer.json does with the regular expression expr and the behaviour
// Isolated: the pieces are the matches of expr and the text between them, in order. It wraps [ErrUnsupported] if Parse would
// refuse the expression.
func Pieces(expr, text string) (pieces []string, err error) {
	defer bail.Recover(&err)
	newPattern(expr).spans(text, &scratch{}, func(s span) bool {
		pieces = append(pieces, text[s.lo:s.hi])
		return true
	})
	return pieces, nil
}

// spans calls yield with the matches of p in text and the text between them, in order and without
// empty ones, until yield returns false. s counts the steps if it has bounds.
// When no steps are left, the rest of the text has no match.
func (p *pattern) spans(text string, s *scratch, yield func(span) bool) {
	own := Allowance(len(text))
	left := s.allowed(&own)
	m := matcherState{m: p.m, text: text}
	given := 0 // end of the text yielded so far
	for from := 0; from <= len(text); {
		lo, hi, ok := p.find(&m, from, left)
		if !ok {
			break
		}
		if given < lo && !yield(span{given, lo, false}) {
			return
		}
		if given, from = hi, hi; lo < hi {
			if !yield(span{lo, hi, true}) {
				return
			}
		} else { // an empty match only splits the text; continue after the next rune
			_, n := utf8.DecodeRuneInString(text[lo:])
			from += max(n, 1)
		}
	}
	if given < len(text) {
		yield(span{given, len(text), false})
	}
}

// find returns the first match in m.text[from:], and lowers *left by the steps taken.
func (p *pattern) find(m *matcherState, from int, left *int) (lo, hi int, ok bool) {
	if p.d != nil {
		return p.d.find(m.text, from, left)
	}
	m.steps = *left
	lo, hi, ok = m.find(from)
	*left = max(m.steps, 0)
	return lo, hi, ok
}

// replace returns text with every match replaced by content. When no steps are left (see spans),
// the rest of text stays as it is.
func (p *pattern) replace(text, content string, s *scratch) string {
	var out strings.Builder
	p.spans(text, s, func(at span) bool {
		if at.match {
			out.WriteString(content)
		} else {
			out.WriteString(text[at.lo:at.hi])
		}
		return true
	})
	return out.String()
}
