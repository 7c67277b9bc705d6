package tokenizer

import (
	"strings"
	"unicode/utf8"
)

// pattern is a regular expression of a file that has no hand-written splitter. Such expressions
// need look-ahead, which Go's regexp package lacks, and a bound on the work, as files are
// untrusted.
type pattern struct {
	expr string
	m    *machine
}

// span is text[lo:hi]; match reports whether the expression matched it, or it is the text
// between two matches.
type span struct {
	lo, hi int
	match  bool
}

// newPattern compiles expr. Hugging Face's library uses Oniguruma with Ruby's syntax;
// unsupported syntax is refused, and so are expressions that may take exponential time.
func newPattern(expr string) (*pattern, error) {
	if err := checkPattern(expr); err != nil {
		return nil, err
	}
	m, err := newMachine(expr)
	if err != nil {
		return nil, unsupported("regular expression %q: %w; supported is the syntax common to Oniguruma and .NET", expr, err)
	}
	return &pattern{expr, m}, nil
}

// walk iterates over the matches of p in text and the text between them. It decrements steps,
// and stops when none is left.
type walk struct {
	matcherState
	left  *int
	from  int // where to search for the next match
	given int // end of the text returned so far
	next  span
	held  bool // next holds a match to be returned
}

func (p *pattern) walk(text string, steps *int) *walk {
	return &walk{matcherState: matcherState{m: p.m, text: text}, left: steps}
}

// span returns the next span that is not empty. When no steps are left, it returns the rest of
// the text as unmatched.
func (w *walk) span() (_ span, ok bool) {
	if w.held {
		w.held, w.given = false, w.next.hi
		return w.next, true
	}
	for w.from <= len(w.text) {
		w.steps = *w.left
		lo, hi, ok := w.find(w.from)
		*w.left = max(w.steps, 0)
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

// spans appends the matches and the text between them, in order, without empty ones.
func (p *pattern) spans(dst []span, text string) []span {
	steps := allowance(len(text))
	for w := p.walk(text, &steps); ; {
		s, ok := w.span()
		if !ok {
			return dst
		}
		dst = append(dst, s)
	}
}

// replace replaces every match by content.
func (p *pattern) replace(text, content string, steps *int) string {
	var out strings.Builder
	for w := p.walk(text, steps); ; {
		s, ok := w.span()
		switch {
		case !ok:
			return out.String()
		case s.match:
			out.WriteString(content)
		default:
			out.WriteString(text[s.lo:s.hi])
		}
	}
}

// maxPattern bounds the length of an expression in bytes; the longest in use have about 500.
const maxPattern = 8192

// patternScan checks an expression in one pass.
type patternScan struct {
	expr string
	at   int
	open []bool // for each open group: whether it may match one text in several ways
}

// checkPattern refuses, by name, syntax that Oniguruma and this matcher treat differently, and
// repetitions of groups that contain repetitions or alternatives, which may take exponential
// time on some text.
func checkPattern(expr string) error {
	if len(expr) > maxPattern {
		return unsupported("a regular expression of %d bytes; supported are up to %d", len(expr), maxPattern)
	}
	s := patternScan{expr: expr, open: []bool{false}}
	for s.at < len(expr) {
		if what := s.step(); what != "" {
			return unsupported("regular expression %q: %s; supported are the splitting patterns of Llama 3, Qwen, GPT-2, Mistral and GPT-4o, and expressions without it", expr, what)
		}
	}
	return nil
}

// step checks one element and its quantifier. It returns the name of a refused feature.
func (s *patternScan) step() string {
	inner := false // whether the element contains repetitions or alternatives
	switch c := s.expr[s.at]; c {
	case '\\':
		if what := s.escape(); what != "" {
			return what
		}
	case '[':
		if what := s.set(); what != "" {
			return what
		}
	case '(':
		return s.group()
	case ')':
		if len(s.open) == 1 {
			return "a parenthesis that nothing opens"
		}
		inner = s.open[len(s.open)-1]
		s.open = s.open[:len(s.open)-1]
		s.at++
	case '|':
		s.at++
		s.open[len(s.open)-1] = true
		return ""
	default:
		s.at++
	}
	return s.repetition(inner)
}

func (s *patternScan) escape() string {
	s.at++
	if s.at == len(s.expr) {
		return "a backslash at its end"
	}
	c := s.expr[s.at]
	s.at++
	if ('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9') && !strings.ContainsRune("dDsSnrtfvpPux", rune(c)) {
		return `the escape \` + string(c)
	}
	if (c == 'p' || c == 'P') && strings.HasPrefix(s.expr[s.at:], "{") {
		if end := strings.IndexByte(s.expr[s.at:], '}'); end > 0 {
			s.at += end + 1
		}
	}
	return ""
}

// set checks [...]. Oniguruma has nested sets, && and [:names:].
func (s *patternScan) set() string {
	s.at++
	if strings.HasPrefix(s.expr[s.at:], "^") {
		s.at++
	}
	for first := true; s.at < len(s.expr); first = false {
		switch c := s.expr[s.at]; {
		case c == ']' && !first:
			s.at++
			return ""
		case c == '[':
			return "a set in a set"
		case c == '&' && strings.HasPrefix(s.expr[s.at:], "&&"):
			return "an intersection of sets"
		case c == '\\':
			if what := s.escape(); what != "" {
				return what
			}
		default:
			s.at++
		}
	}
	return "a set without an end"
}

var groupKinds = []string{"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?i:", "(?i)"}

// maxGroups bounds the nesting of groups.
const maxGroups = 32

func (s *patternScan) group() string {
	rest := s.expr[s.at:]
	if len(s.open) > maxGroups {
		return "groups nested too deep"
	}
	if !strings.HasPrefix(rest, "(?") {
		s.at++
		s.open = append(s.open, false)
		return ""
	}
	for _, kind := range groupKinds {
		if strings.HasPrefix(rest, kind) {
			s.at += len(kind)
			if kind != "(?i)" {
				s.open = append(s.open, false)
			}
			return ""
		}
	}
	return "the group " + rest[:min(len(rest), 4)]
}

// repetition checks the quantifier of an element.
func (s *patternScan) repetition(inner bool) string {
	n := 0
	for ; s.at < len(s.expr) && strings.IndexByte("?*+{", s.expr[s.at]) >= 0; n++ {
		c, end := s.expr[s.at], s.at+1
		if c == '{' {
			size := strings.IndexByte(s.expr[s.at:], '}')
			if size < 0 {
				return "a brace without an end"
			}
			end = s.at + size + 1
			if body := s.expr[s.at+1 : end-1]; strings.Trim(body, "0123456789,") != "" || body == "" || len(body) > 5 {
				return "the repetition {" + body + "}"
			}
		}
		if n > 0 && c != '?' || n > 1 {
			return "a repetition of a repetition or a possessive one"
		}
		if inner && c != '?' {
			return "a repetition of a group that holds repetitions or alternatives"
		}
		s.at = end
	}
	if inner || n > 0 {
		s.open[len(s.open)-1] = true
	}
	return ""
}
