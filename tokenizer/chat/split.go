package chat

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// split implements str.split or, from the right, str.rsplit.
func (r *run) split(s string, a *arguments, right bool) any {
	sep, most := a.or(0, "sep", nil), a.integer(1, "maxsplit", -1)
	if most < 0 {
		most = int64(len(s))
	}
	var parts []string
	if sep == nil {
		parts = r.splitSpace(s, int(min(most, int64(len(s)))), right)
	} else {
		by := asString(a.of, sep)
		if by == "" {
			fail("%s by empty text", a.of)
		}
		parts = r.splitBy(s, by, int(min(most, int64(len(s)))), right)
	}
	return listOf(parts)
}

// partSteps is the number of steps that a part of a split text costs: it is a new string, and an element
// of two lists.
const partSteps = 4

func (r *run) splitBy(s, by string, most int, right bool) []string {
	r.spend(partSteps * (1 + min(most, strings.Count(s, by))))
	if !right {
		return strings.SplitN(s, by, most+1)
	}
	var parts []string
	for ; most > 0; most-- {
		i := strings.LastIndex(s, by)
		if i < 0 {
			break
		}
		parts = append(parts, s[i+len(by):])
		s = s[:i]
	}
	parts = append(parts, s)
	slices.Reverse(parts)
	return parts
}

// splitSpace splits s at runs of white space, from the right if right is set. most is the largest
// number of splits. The text that is left after the last split is one part.
func (r *run) splitSpace(s string, most int, right bool) []string {
	trim, other := strings.TrimLeftFunc, strings.TrimRightFunc
	if right {
		trim, other = other, trim
	}
	var parts []string
	for s = trim(s, isSpace); s != ""; s = trim(s, isSpace) {
		r.spend(partSteps)
		i := strings.IndexFunc(s, isSpace)
		if right {
			i = strings.LastIndexFunc(s, isSpace)
		}
		switch {
		case most <= 0:
			parts, s = append(parts, s), ""
		case i < 0:
			parts, s = append(parts, other(s, isSpace)), ""
		case right:
			_, n := utf8.DecodeRuneInString(s[i:])
			parts, s = append(parts, s[i+n:]), s[:i]
		default:
			parts, s = append(parts, s[:i]), s[i:]
		}
		most--
	}
	if right {
		slices.Reverse(parts)
	}
	return parts
}

func splitLines(r *run, s string, a *arguments) any {
	keep := truth(a.or(0, "keepends", false))
	ends := "\n\r\v\f\x1c\x1d\x1e\u0085\u2028\u2029"
	var parts []string
	for s != "" {
		r.spend(partSteps)
		i := strings.IndexAny(s, ends)
		if i < 0 {
			parts = append(parts, s)
			break
		}
		_, n := utf8.DecodeRuneInString(s[i:])
		if strings.HasPrefix(s[i:], "\r\n") {
			n = 2
		}
		end := i
		if keep {
			end += n
		}
		parts = append(parts, s[:end])
		s = s[i+n:]
	}
	return listOf(parts)
}

func listOf(parts []string) *list {
	out := &list{}
	for _, p := range parts {
		out.items = append(out.items, p)
	}
	return out
}
