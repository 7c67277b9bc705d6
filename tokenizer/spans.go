package tokenizer

import "strings"

// spans calls yield with the matches of c's expression or literal in text and the text between
// them, in order and without empty ones, until yield returns false.
func (c *cutter) spans(text string, s *scratch, yield func(span) bool) {
	if c.pattern != nil {
		c.pattern.spans(text, s, yield)
		return
	}
	for from, to := 0, 0; from < len(text); from = to {
		n := -1
		if c.literal != "" {
			n = strings.Index(text[from:], c.literal)
		}
		switch n {
		case -1:
			to = len(text)
		case 0:
			to = from + len(c.literal)
		default:
			to = from + n
		}
		if !yield(span{from, to, n == 0}) {
			return
		}
	}
}

// pieces calls yield with the pieces into which c splits text, until yield returns false. It
// removes matches or joins them with their neighbours as c.behavior requires. Among adjacent
// matches only the one next to unmatched text is joined with it.
func (c *cutter) pieces(text string, s *scratch, yield func(span) bool) {
	var piece span // the next span may be joined to it; empty before the first span
	matched, more := false, true
	c.spans(text, s, func(at span) bool {
		at.match = at.match != c.invert
		switch {
		case c.behavior == isolated:
			return yield(at)
		case c.behavior == removed:
			return at.match || yield(at)
		case piece.hi > 0 && c.joins(matched, at.match):
			piece.hi = at.hi
		default:
			if piece.hi > 0 {
				more = yield(piece)
			}
			piece = at
		}
		matched = at.match
		return more
	})
	if more && piece.hi > 0 {
		yield(piece)
	}
}

// joins reports whether two adjacent spans become one piece, of which the parameters say whether
// they are matches.
func (c *cutter) joins(left, right bool) bool {
	switch c.behavior {
	case contiguous:
		return left == right
	case mergedWithPrevious:
		return right && !left
	case mergedWithNext:
		return left && !right
	}
	return false
}
