package tokenizer

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// borders decides whether a text certainly splits between two adjacent runes: whatever comes before and
// after them, one piece ends with the left rune and the next one begins with the right rune, and neither
// piece depends on the other one's side.
//
// It follows the pair through the pipeline. Each step must do the same to a text as to its two parts.
// Among the files of the families in use, texts split
//
//   - with the expressions of Llama 3, Qwen, GPT-2, Tekken, o200k and DeepSeek: where one kind of
//     character ends and the next begins, such as between a letter and the space after it;
//   - with SentencePiece's files, which have no expressions: before the space after another character;
//   - with a Metaspace that splits: before each space.
//
// A file has no borders if it strips texts, replaces by an expression, or splits by an expression that
// has no automaton or whose matches are removed or joined with their neighbours.
type borders struct {
	t               *Tokenizer
	cutters         []cutterBorders // by cutter
	raw, normalized edges
	forms           bool                     // a normalizer is a form of Unicode
	ascii           [utf8.RuneSelf][2]uint64 // by the left rune: a bit for each right rune
}

// find fills b, whose t is set.
func (b *borders) find() {
	b.raw, b.normalized = newEdges(b.t.raw), newEdges(b.t.normalized)
	b.forms = slices.ContainsFunc(b.t.normalizers, func(n normalizer) bool { return n.kind == normalForm })
	b.cutters = make([]cutterBorders, len(b.t.cutters))
	for i := range b.t.cutters {
		if c := &b.t.cutters[i]; c.pattern != nil && c.pattern.d != nil && c.behavior == isolated {
			b.cutters[i] = c.pattern.d.borders()
		}
	}
	for l := range rune(utf8.RuneSelf) {
		for r := range rune(utf8.RuneSelf) {
			if b.between(l, r) {
				b.ascii[l][r>>6] |= 1 << (r & 63)
			}
		}
	}
}

// at reports whether text certainly splits at the offset i, which is neither its beginning nor its end.
func (b *borders) at(text string, i int) bool {
	if l, r := text[i-1], text[i]; l < utf8.RuneSelf && r < utf8.RuneSelf {
		return b.ascii[l][r>>6]>>(r&63)&1 == 1
	} else if !utf8.RuneStart(r) {
		return false
	}
	r, _ := utf8.DecodeRuneInString(text[i:])
	if r == utf8.RuneError {
		return false
	}
	l, _ := utf8.DecodeLastRuneInString(text[:i])
	return b.between(l, r)
}

// between reports whether a text certainly splits between l and r. In texts without such places it is called
// for each rune, so it looks at the forms of runes, which takes longest, last.
func (b *borders) between(l, r rune) bool {
	if l == utf8.RuneError || r == utf8.RuneError || !b.raw.apart(l, r) { // the error may be a part of a rune
		return false
	}
	return b.splits(l, r, false) && (!b.forms || b.splits(l, r, true))
}

// splits follows l and r through the pipeline after the first search for added tokens. Without forms, it
// takes all runes for normalized.
func (b *borders) splits(l, r rune, forms bool) bool {
	for i := range b.t.normalizers {
		n := &b.t.normalizers[i]
		if n.kind == normalForm && !forms {
			continue
		}
		var ok bool
		if l, r, ok = n.border(l, r); !ok {
			return false
		}
	}
	if !b.normalized.apart(l, r) {
		return false
	}
	certain := false
	for i := range b.t.cutters {
		var place joint
		if l, r, place = b.t.cutters[i].border(&b.cutters[i], l, r); place == mixed {
			return false
		}
		certain = certain || place == parted
	}
	return certain || b.t.words != "" && r == metaspaceRune && l != r
}

// edges has the ends of a matcher's added tokens.
type edges struct {
	runes          [1 << 10 / 64]uint64 // a bit for the low ten bits of each rune in a token
	inside         map[[2]rune]bool     // adjacent runes of a token
	last           map[rune]bool        // last runes
	rare           map[rune]bool        // first runes of tokens with single_word
	lstrip, rstrip bool                 // some token absorbs white space
}

func newEdges(m *matcher) edges {
	e := edges{inside: map[[2]rune]bool{}, last: map[rune]bool{}, rare: map[rune]bool{}}
	for _, a := range m.tokens {
		runes := []rune(a.content)
		for _, r := range runes {
			e.runes[r>>6&15] |= 1 << (r & 63)
		}
		for i := range len(runes) - 1 {
			e.inside[[2]rune{runes[i], runes[i+1]}] = true
		}
		e.last[runes[len(runes)-1]] = true
		if a.singleWord {
			e.rare[runes[0]] = true
		}
		e.lstrip, e.rstrip = e.lstrip || a.lstrip, e.rstrip || a.rstrip
	}
	return e
}

// apart reports whether no added token contains both l and r, absorbs l or r as white space, or looks at
// the rune on the other side. A token that ends with l is excluded as well: what follows it begins a segment of its own.
func (e *edges) apart(l, r rune) bool {
	if (e.has(l) || e.has(r)) && (e.inside[[2]rune{l, r}] || e.last[l] || e.rare[r]) {
		return false
	}
	if !e.lstrip && !e.rstrip || !unicode.IsSpace(l) {
		return true
	}
	return !e.lstrip && !unicode.IsSpace(r)
}

// has reports whether r may be in a token.
func (e *edges) has(r rune) bool { return e.runes[r>>6&15]>>(r&63)&1 == 1 }

// border returns the runes that n makes of two adjacent runes. ok is false if it may treat a text that has them
// in another way than two texts that end and begin with them.
func (n *normalizer) border(l, r rune) (_, _ rune, ok bool) {
	switch n.kind {
	case normalForm:
		return l, r, n.inert(l) && n.inert(r)
	case normalLowercase:
		return unicode.ToLower(l), unicode.ToLower(r), l != 'İ' && r != 'İ'
	case normalPrepend: // at the beginning of a text, which is never between l and r
		return l, r, true
	case normalReplace:
		if n.pattern != nil {
			return l, r, false
		}
		return replaced(n.old, n.content, l, r)
	}
	return l, r, false
}

// inert reports whether r stays the same in the form of n, and does not combine with what is before it.
func (n *normalizer) inert(r rune) bool { return r < utf8.RuneSelf || n.form.Inert(r) }

// replaced returns what l and r become if old is replaced by content; ok is false if a replaced part
// may contain both.
func replaced(old, content string, l, r rune) (_, _ rune, ok bool) {
	switch {
	case old == "" || !strings.ContainsRune(old, l) && !strings.ContainsRune(old, r):
		return l, r, true
	case utf8.RuneCountInString(old) > 1 || content == "":
		return l, r, false
	}
	if strings.ContainsRune(old, l) {
		l, _ = utf8.DecodeLastRuneInString(content)
	}
	if strings.ContainsRune(old, r) {
		r, _ = utf8.DecodeRuneInString(content)
	}
	return l, r, true
}

// joint says how a pre-tokenizer treats the place between two runes of a piece.
type joint uint8

const (
	mixed  joint = iota // unknown: a piece may depend on both sides
	joined              // the place is inside one piece, or between two that do not depend on each other's side
	parted              // the place is between two such pieces
)

// border returns the runes that c makes of two adjacent runes, and how it treats the place between them.
func (c *cutter) border(b *cutterBorders, l, r rune) (_, _ rune, place joint) {
	switch {
	case c.kind == cutPrefix: // a piece that begins with a space is given none
		if r == ' ' {
			place = joined
		}
		return l, r, place
	case c.kind == cutMetaspace:
		l, r, _ = replaced(" ", c.literal, l, r)
		if first, n := utf8.DecodeRuneInString(c.literal); c.prepend != prependAlways || r == first && n == len(c.literal) {
			place = joined
		}
		return l, r, place
	case c.pattern != nil:
		return l, r, b.between(c.pattern, l, r)
	}
	return l, r, c.literalBorder(l, r)
}

// literalBorder is border for a Split by a literal.
func (c *cutter) literalBorder(l, r rune) joint {
	switch lit, n := utf8.DecodeRuneInString(c.literal); {
	case !strings.ContainsRune(c.literal, l) && !strings.ContainsRune(c.literal, r):
		return joined
	case n < len(c.literal):
	case r == lit && (c.behavior == isolated || c.behavior == mergedWithNext):
		return parted
	case r != lit && (c.behavior == isolated || c.behavior == mergedWithPrevious):
		return parted
	}
	return mixed
}

// cutterBorders has the borders of an automaton, by classes of runes.
type cutterBorders struct {
	width int
	cross []bool // [left*width+right]: a match may contain both, or depends on what follows the left one
	sure  []bool // by the right rune: a match begins there, unless one contains the rune before as well
}

// maxBorderClasses bounds the classes for which borders are computed: they take the square of that. The
// files in use have under 40.
const maxBorderClasses = 256

// borders computes the borders of d, which are none if it has too many classes.
func (d *dfa) borders() (b cutterBorders) {
	if d.width > maxBorderClasses {
		return b
	}
	n := d.width - 1 // classes without the end of the text
	b = cutterBorders{width: n, cross: make([]bool, n*n), sure: make([]bool, n)}
	row := func(state int) []uint32 { return d.next[state*d.width:][:d.width] }
	states := len(d.next) / d.width
	reached := make([]bool, states)
	for l := range n {
		clear(reached)
		for state := range states {
			reached[int(row(state)[l]>>1)/d.width] = true
		}
		for state, ok := range reached {
			if !ok || state == dead {
				continue
			}
			next := row(state)
			for r := range n {
				if next[r]>>1 != dead || next[r]&1 != next[n]&1 {
					b.cross[l*n+r] = true
				}
			}
		}
	}
	for r := range n {
		if state := int(row(start)[r]>>1) / d.width; state != dead {
			b.sure[r] = true
			for _, next := range row(state) {
				b.sure[r] = b.sure[r] && next&1 == 1
			}
		}
	}
	return b
}

// between returns how a Split into the matches of p and the text between them treats the place between
// l and r.
func (b *cutterBorders) between(p *pattern, l, r rune) joint {
	if b.cross == nil {
		return mixed
	}
	left, right := int(p.d.classes.of(l)), int(p.d.classes.of(r))
	switch {
	case b.cross[left*b.width+right]:
		return mixed
	case b.sure[right]:
		return parted
	}
	return joined
}
