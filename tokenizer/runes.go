package tokenizer

import (
	"slices"
	"unicode"

	"github.com/coppice-llm/coppice/internal/runeset"
)

// casedRunes returns the runes that others equal but for case, ascending.
func casedRunes() (cased []rune) {
	const last = 0x1E943
	for r := range rune(last + 1) {
		if unicode.SimpleFold(r) != r {
			cased = append(cased, r)
		}
	}
	return cased
}

// folded returns s with the runes that differ from those of s only in case. cased is casedRunes().
func folded(s runeset.Set, cased []rune) runeset.Set {
	all, i := slices.Clone(s), 0
	for _, r := range cased {
		for i < len(s) && s[i].Hi < r {
			i++
		}
		if i == len(s) || r < s[i].Lo {
			continue
		}
		for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
			all = append(all, runeset.Range{Lo: f, Hi: f})
		}
	}
	return runeset.New(all)
}

// runeClasses divides the runes into classes: all runes of a class are in the same sets.
type runeClasses struct {
	page  [(unicode.MaxRune + 1) >> 8]uint16 // by rune/256: index into pages
	pages [][256]uint16                      // the classes of 256 runes; equal pages are there once
	in    []string                           // by class: byte x is 1 if the class is in set x, else 0
}

// of returns the class of r.
func (c *runeClasses) of(r rune) uint16 { return c.pages[c.page[r>>8]][r&0xFF] }

// newRuneClasses returns the classes of the runes by the sets that they are in.
func newRuneClasses(sets []runeset.Set) *runeClasses {
	cuts := []rune{0, unicode.MaxRune + 1} // places between which all runes are in the same sets
	for _, s := range sets {
		for _, x := range s {
			cuts = append(cuts, x.Lo, x.Hi+1)
		}
	}
	slices.Sort(cuts)
	cuts = slices.Compact(cuts)
	c := &runeClasses{}
	known, pages := map[string]uint16{}, map[[256]uint16]uint16{}
	at, in := make([]int, len(sets)), make([]byte, len(sets))
	var page [256]uint16
	for i, lo := range cuts[:len(cuts)-1] {
		for x, s := range sets {
			for at[x] < len(s) && s[at[x]].Hi < lo {
				at[x]++
			}
			in[x] = 0
			if at[x] < len(s) && s[at[x]].Lo <= lo {
				in[x] = 1
			}
		}
		class, ok := known[string(in)]
		if !ok {
			class = uint16(len(c.in))
			known[string(in)] = class
			c.in = append(c.in, string(in))
		}
		for r := lo; r < cuts[i+1]; r++ {
			if r&0xFF == 0 && r-0x100 >= lo && r+0xFF < cuts[i+1] { // like the page before
				c.page[r>>8] = c.page[r>>8-1]
				r += 0xFF
				continue
			}
			if page[r&0xFF] = class; r&0xFF == 0xFF {
				n, ok := pages[page]
				if !ok {
					n = uint16(len(c.pages))
					pages[page] = n
					c.pages = append(c.pages, page)
				}
				c.page[r>>8] = n
			}
		}
	}
	return c
}
