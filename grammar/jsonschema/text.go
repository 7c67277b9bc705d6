package jsonschema

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/coppice-llm/coppice/grammar"
	"github.com/coppice-llm/coppice/internal/runeset"
)

// Expressions of strings in this package are of two kinds: of a string's value, and of its JSON
// form with escapes. written translates the first kind into the second.

// written returns the JSON form, without quotes, of the values that e matches. Each value has one
// form: a character stands for itself, or is a short escape, or else \u00xx in lower case.
func written(e *grammar.Expr) *grammar.Expr {
	switch e.Op {
	case grammar.Runes:
		return writtenRunes(e)
	case grammar.Text:
		return lit(escape(e.Text))
	case grammar.Seq:
		return seq(appendWritten(nil, e)...)
	}
	return rebuilt(e, written)
}

// appendWritten appends the written parts of e, a Seq, and of Seqs directly in it. Flattening
// first makes seq join texts once, instead of at each level of nesting.
func appendWritten(sub []*grammar.Expr, e *grammar.Expr) []*grammar.Expr {
	for _, s := range e.Sub {
		if s.Op == grammar.Seq {
			sub = appendWritten(sub, s)
		} else {
			sub = append(sub, written(s))
		}
	}
	return sub
}

// raw holds the runes that need no escape in a JSON string.
var raw = []grammar.Range{{Lo: ' ', Hi: '!'}, {Lo: '#', Hi: '['}, {Lo: ']', Hi: utf8.MaxRune}}

const shorts = "\"\\\b\f\n\r\t" // characters with a short escape
const shortLetters = `"\bfnrt`  // the letters of these escapes, in the same order

// writtenRunes returns the JSON form of e, a set of runes: the runes that need no escape, the
// short escapes, and \u00xx for other control characters.
func writtenRunes(e *grammar.Expr) *grammar.Expr {
	set := runeset.Set(e.Runes)
	if set.IsOne() {
		return lit(escape(string(set[0].Lo)))
	}
	asIs := meetRunes(set, raw)
	if slices.Equal(asIs, set) {
		return e
	}
	var letters []grammar.Range
	var long [2][]grammar.Range // last digits of \u00xx, by the digit before: \u000x, \u001x
	for i, r := range shorts {
		if set.Has(r) {
			c := rune(shortLetters[i])
			letters = append(letters, grammar.Range{Lo: c, Hi: c})
		}
	}
	for r := rune(0); r < ' '; r++ {
		if set.Has(r) && !strings.ContainsRune(shorts, r) {
			c := rune("0123456789abcdef"[r%16])
			long[r/16] = append(long[r/16], grammar.Range{Lo: c, Hi: c})
		}
	}
	var parts []*grammar.Expr
	if len(asIs) > 0 {
		parts = append(parts, runes(asIs...))
	}
	if len(letters) > 0 {
		parts = append(parts, seq(lit(`\`), runes(runeset.New(letters)...)))
	}
	for i, digits := range long {
		if len(digits) > 0 {
			parts = append(parts, seq(lit(`\u00`+string(rune('0'+i))), runes(runeset.New(digits)...)))
		}
	}
	return either(parts...)
}

// escape returns the JSON form of s without quotes, in the one form that written allows.
func escape(s string) string {
	var out strings.Builder
	for _, r := range s {
		switch i := strings.IndexRune(shorts, r); {
		case i >= 0:
			out.WriteByte('\\')
			out.WriteByte(shortLetters[i])
		case r < ' ':
			fmt.Fprintf(&out, `\u%04x`, r)
		default:
			out.WriteRune(r)
		}
	}
	return out.String()
}

func quote(s string) string { return `"` + escape(s) + `"` }

// meetRunes returns the intersection of two normal sets.
func meetRunes(a, b []grammar.Range) []grammar.Range {
	var out []grammar.Range
	for len(a) > 0 && len(b) > 0 {
		if lo, hi := max(a[0].Lo, b[0].Lo), min(a[0].Hi, b[0].Hi); lo <= hi {
			out = append(out, grammar.Range{Lo: lo, Hi: hi})
		}
		if a[0].Hi < b[0].Hi {
			a = a[1:]
		} else {
			b = b[1:]
		}
	}
	return out
}

// bounded returns an expression of the texts of e whose number of runes is between least and
// most. e is an expression of values. It returns false if that expression would be larger than e.
func bounded(e *grammar.Expr, least, most int) (*grammar.Expr, bool) {
	return make(widths).bounded(e, least, most)
}

func (w widths) bounded(e *grammar.Expr, least, most int) (*grammar.Expr, bool) {
	lo, hi := w.of(e)
	switch {
	case most != grammar.Unlimited && lo > most || hi != grammar.Unlimited && hi < least:
		return nothing, true
	case lo >= least && (most == grammar.Unlimited || hi != grammar.Unlimited && hi <= most):
		return e, true
	}
	switch e.Op {
	case grammar.Either:
		parts := make([]*grammar.Expr, len(e.Sub))
		for i, s := range e.Sub {
			var ok bool
			if parts[i], ok = w.bounded(s, least, most); !ok {
				return nil, false
			}
		}
		return either(parts...), true
	case grammar.Repeat:
		return w.repeated(e, least, most)
	case grammar.Seq:
		at, fixed := -1, 0
		for i, s := range e.Sub {
			lo, hi := w.of(s)
			if lo == hi {
				fixed += lo
			} else if at >= 0 {
				return nil, false
			} else {
				at = i
			}
		}
		parts := slices.Clone(e.Sub)
		if most != grammar.Unlimited {
			most -= fixed
		}
		var ok bool
		if parts[at], ok = w.bounded(parts[at], max(0, least-fixed), most); !ok {
			return nil, false
		}
		return seq(parts...), true
	}
	return nil, false
}

// repeated is bounded for a repeat. If the body has a fixed number of runes, it changes the
// counts: a body of 3 runes, from 4 to 10 runes in all, is repeated 2 to 3 times. It returns
// false for a body without a fixed number, unless the repeat is optional (0 to 1 times).
func (w widths) repeated(e *grammar.Expr, least, most int) (*grammar.Expr, bool) {
	sub := e.Sub[0]
	if e.Min == 0 && e.Max == 1 {
		some, ok := w.bounded(sub, least, most)
		if ok && least == 0 {
			some = optional(some)
		}
		return some, ok
	}
	width, widest := w.of(sub)
	if width != widest || width == 0 {
		return nil, false
	}
	from, to := max(e.Min, (least+width-1)/width), e.Max
	if most != grammar.Unlimited && (to == grammar.Unlimited || to > most/width) {
		to = most / width
	}
	return repeat(sub, from, to), true
}

// widths caches the least and the largest number of runes that expressions of values match. It
// has only expressions with parts, so that a shared expression is walked only once.
type widths map[*grammar.Expr]width

type width struct{ lo, hi int }

// of returns the least and the largest number of runes that e matches; hi may be Unlimited.
func (w widths) of(e *grammar.Expr) (lo, hi int) {
	if len(e.Sub) == 0 {
		return w.walk(e)
	}
	at, known := w[e]
	if !known {
		at.lo, at.hi = w.walk(e)
		w[e] = at
	}
	return at.lo, at.hi
}

func (w widths) walk(e *grammar.Expr) (lo, hi int) {
	switch e.Op {
	case grammar.Text:
		n := utf8.RuneCountInString(e.Text)
		return n, n
	case grammar.Runes:
		return 1, 1
	case grammar.Repeat:
		lo, hi = w.of(e.Sub[0])
		return times(lo, e.Min), times(hi, e.Max)
	case grammar.Seq:
		for _, s := range e.Sub {
			l, h := w.of(s)
			lo, hi = plus(lo, l), plus(hi, h)
		}
		return lo, hi
	}
	for i, s := range e.Sub {
		l, h := w.of(s)
		if i == 0 {
			lo, hi = l, h
			continue
		}
		lo = min(lo, l)
		if hi != grammar.Unlimited && (h == grammar.Unlimited || h > hi) {
			hi = h
		}
	}
	return lo, hi
}

// enough caps lengths. It is more runes than any text has.
const enough = 1 << 30

func times(a, b int) int {
	switch {
	case a == 0 || b == 0:
		return 0
	case a == grammar.Unlimited || b == grammar.Unlimited:
		return grammar.Unlimited
	case a > enough/b:
		return enough
	}
	return a * b
}

func plus(a, b int) int {
	if a == grammar.Unlimited || b == grammar.Unlimited {
		return grammar.Unlimited
	}
	if a > enough-b { // the sum may not fit 32 bits
		return enough
	}
	return a + b
}
