// Package runeset computes sets of runes for the parsers of regular expressions. It owns no tables:
// those of Unicode are package unicode's.
//
//	letters := runeset.Table(unicode.L)
//	others := runeset.New(append(letters, runeset.Range{Lo: '0', Hi: '9'})).Complement()
package runeset

import (
	"cmp"
	"slices"
	"unicode"
)

// Range is the runes from Lo to Hi inclusive.
type Range struct{ Lo, Hi rune }

// Set is a set of runes: ascending ranges that neither overlap nor touch.
type Set []Range

// One returns the set of r alone.
func One(r rune) Set { return Set{{r, r}} }

// New returns the set of the runes in ranges, which may have any order and overlap.
func New(ranges []Range) (s Set) {
	for _, x := range slices.SortedFunc(slices.Values(ranges), func(a, b Range) int { return cmp.Compare(a.Lo, b.Lo) }) {
		if n := len(s); n > 0 && x.Lo <= s[n-1].Hi+1 {
			s[n-1].Hi = max(s[n-1].Hi, x.Hi)
		} else {
			s = append(s, x)
		}
	}
	return s
}

// Table returns the runes in a table of package unicode.
func Table(table *unicode.RangeTable) Set {
	var all []Range
	add := func(lo, hi, stride rune) {
		if stride == 1 {
			all = append(all, Range{lo, hi})
			return
		}
		for r := lo; r <= hi; r += stride {
			all = append(all, Range{r, r})
		}
	}
	for _, x := range table.R16 {
		add(rune(x.Lo), rune(x.Hi), rune(x.Stride))
	}
	for _, x := range table.R32 {
		add(rune(x.Lo), rune(x.Hi), rune(x.Stride))
	}
	return New(all)
}

// Complement returns the runes that are not in s.
func (s Set) Complement() (out Set) {
	next := rune(0)
	for _, x := range s {
		if x.Lo > next {
			out = append(out, Range{next, x.Lo - 1})
		}
		next = x.Hi + 1
	}
	if next <= unicode.MaxRune {
		out = append(out, Range{next, unicode.MaxRune})
	}
	return out
}

// Has reports whether r is in s.
func (s Set) Has(r rune) bool {
	return slices.ContainsFunc(s, func(x Range) bool { return x.Lo <= r && r <= x.Hi })
}

// IsOne reports whether s is the set of a single rune.
func (s Set) IsOne() bool { return len(s) == 1 && s[0].Lo == s[0].Hi }
