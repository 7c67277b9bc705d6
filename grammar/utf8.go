package grammar

import (
	"unicode/utf8"

	"github.com/coppice-llm/coppice/internal/runeset"
)

// span is the bytes from lo to hi inclusive.
type span struct{ lo, hi byte }

// normalRunes returns ranges in ascending order, with ranges that touch or overlap joined, and
// without surrogates.
func normalRunes(ranges []Range) []Range {
	var out []Range
	add := func(lo, hi rune) {
		if lo <= hi {
			out = append(out, Range{Lo: lo, Hi: hi})
		}
	}
	for _, r := range ranges {
		add(r.Lo, min(r.Hi, 0xD7FF))
		add(max(r.Lo, 0xE000), r.Hi)
	}
	return runeset.New(out)
}

// appendUTF8 appends sequences of byte spans that together match the UTF-8 of exactly the runes
// in r. Within a sequence any byte of a span may follow any byte of the span before: U+0780 to
// U+0801 is DE-DF 80-BF and E0 A0 80-81.
func appendUTF8(dst [][]span, r Range) [][]span {
	for _, edge := range []rune{0x7F, 0x7FF, 0xFFFF} { // where the length changes
		if r.Lo <= edge && edge < r.Hi {
			return appendUTF8(appendUTF8(dst, Range{Lo: r.Lo, Hi: edge}), Range{Lo: edge + 1, Hi: r.Hi})
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
			return appendUTF8(appendUTF8(dst, Range{Lo: r.Lo, Hi: r.Lo | low}), Range{Lo: (r.Lo | low) + 1, Hi: r.Hi})
		}
		if r.Hi&low != low {
			return appendUTF8(appendUTF8(dst, Range{Lo: r.Lo, Hi: r.Hi&^low - 1}), Range{Lo: r.Hi &^ low, Hi: r.Hi})
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
