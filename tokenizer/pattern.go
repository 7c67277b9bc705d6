package tokenizer

import (
	"strings"
	"unicode/utf8"
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

// walk iterates over the matches of a pattern in a text and the text between them. When the steps
// that it may take are used up, it finds no more matches.
type walk struct {
	matcherState
	d     *dfa
	own   int // steps left, unless s counts them
	s     *scratch
	from  int // where to search for the next match
	given int // end of the text returned so far
	next  span
	held  bool // next holds a match to be returned
}

// walk starts an iteration over text. s, which may be nil, counts the steps if it has bounds.
func (p *pattern) walk(text string, s *scratch) walk {
	return walk{matcherState: matcherState{m: p.m, text: text}, d: p.d, own: allowance(len(text)), s: s}
}

// span returns the next span that is not empty; ok is false at the end of the text. When no steps
// are left, it returns the rest of the text as unmatched.
func (w *walk) span() (_ span, ok bool) {
	if w.held {
		w.held, w.given = false, w.next.hi
		return w.next, true
	}
	for w.from <= len(w.text) {
		lo, hi, ok := w.find()
		if !ok {
			break
		}
		if lo == hi { // an empty match only splits the text; continue after the next rune
			_, n := utf8.DecodeRuneInString(w.text[lo:])
			w.from = lo + max(n, 1)
			if at := w.given; at < lo {
				w.given = lo
				return span{at, lo, false}, true
			}
			continue
		}
		w.from, w.next = hi, span{lo, hi, true}
		if w.given < lo {
			w.held = true
			return span{w.given, lo, false}, true
		}
		w.given = hi
		return w.next, true
	}
	if w.from = len(w.text) + 1; w.given < len(w.text) {
		at := w.given
		w.given = len(w.text)
		return span{at, len(w.text), false}, true
	}
	return span{}, false
}

// find returns the first match in text[from:].
func (w *walk) find() (lo, hi int, ok bool) {
	left := w.s.allowed(&w.own)
	if w.d != nil {
		return w.d.find(w.text, w.from, left)
	}
	w.steps = *left
	lo, hi, ok = w.matcherState.find(w.from)
	*left = max(w.steps, 0)
	return lo, hi, ok
}

// replace returns text with every match replaced by content. When no steps are left (see walk),
// the rest of text stays as it is.
func (p *pattern) replace(text, content string, s *scratch) string {
	var out strings.Builder
	for w := p.walk(text, s); ; {
		at, ok := w.span()
		switch {
		case !ok:
			return out.String()
		case at.match:
			out.WriteString(content)
		default:
			out.WriteString(text[at.lo:at.hi])
		}
	}
}
