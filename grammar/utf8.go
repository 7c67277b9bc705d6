package grammar

import (
	"slices"
	"unicode/utf8"
)

// span is the bytes from lo to hi inclusive.
type span struct{ lo, hi byte }

// normalRunes returns ranges in ascending order, with ranges that touch or overlap joined, and
// without surrogates.
func normalRunes(ranges []Range) []Range {
	var out []Range
	add := func(lo, hi rune) {
		if lo <= hi {
			out = append(out, Range{lo, hi})
		}
	}
	for _, r := range ranges {
		add(r.Lo, min(r.Hi, 0xD7FF))
		add(max(r.Lo, 0xE000), r.Hi)
	}
	slices.SortFunc(out, func(a, b Range) int { return int(a.Lo) - int(b.Lo) })
	joined := out[:0]
	for _, r := range out {
		if n := len(joined); n > 0 && r.Lo <= joined[n-1].Hi+1 {
			joined[n-1].Hi = max(joined[n-1].Hi, r.Hi)
			continue
		}
		joined = append(joined, r)
	}
	return joined
}

// appendUTF8 appends sequences of byte spans that together match the UTF-8 of exactly the runes
// in r. Within a sequence any byte of a span may follow any byte of the span before: U+0780 to
// U+0801 is DE-DF 80-BF and E0 A0 80-81.
func appendUTF8(dst [][]span, r Range) [][]span {
	for _, edge := range []rune{0x7F, 0x7FF, 0xFFFF} { // where the length changes
		if r.Lo <= edge && edge < r.Hi {
			return appendUTF8(appendUTF8(dst, Range{r.Lo, edge}), Range{edge + 1, r.Hi})
		}
	}
	if r.Hi <= 0x7F {
		return append(dst, []span{{byte(r.Lo), byte(r.Hi)}})
	}
	for low := rune(0x3F); low <= 0x3FFFF; low = low<<6 | 0x3F { // bits in the last 1, 2, 3 bytes
		if r.Lo&^low == r.Hi&^low {
			break
		}
		if r.Lo&low != 0 {
			return appendUTF8(appendUTF8(dst, Range{r.Lo, r.Lo | low}), Range{(r.Lo | low) + 1, r.Hi})
		}
		if r.Hi&low != low {
			return appendUTF8(appendUTF8(dst, Range{r.Lo, r.Hi&^low - 1}), Range{r.Hi &^ low, r.Hi})
		}
	}
	var lo, hi [utf8.UTFMax]byte
	n := utf8.EncodeRune(lo[:], r.Lo)
	utf8.EncodeRune(hi[:], r.Hi)
	seq := make([]span, n)
	for i := range seq {
		seq[i] = span{lo[i], hi[i]}
	}
	return append(dst, seq)
}
