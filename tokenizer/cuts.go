package tokenizer

import (
	"slices"
	"strings"
	"unicode"

	"github.com/coppice-llm/coppice/kv"
)

// Cuts finds the places at which a text may be cut such that the tokens of both parts together
// are those of the whole text, whatever else is in it: before added tokens ("<|im_start|>") that
// are found wherever they occur, and where pieces certainly end. It is immutable and safe for
// concurrent use.
//
// The part before a place is encoded as a text of its own, and the part after it with
// Options.Inside. Parts depend on their own bytes alone, so the tokens of a part may be kept and used
// in other texts.
type Cuts struct {
	tokens  []string        // sorted; none is a prefix of another
	first   string          // their first bytes
	pairs   [1 << 10]uint64 // a bit for each pair of bytes that a token may begin with
	borders borders
	// unplain says that no text with Options.Plain may be cut: a special token may be found after
	// normalization, and one such offset then concerns all text up to the next added token.
	unplain bool
}

// maxCutWork bounds the sum of the squared lengths of a file's added tokens. If it is larger, there
// are no cuts: to find them takes time in proportion. Files in use have under 2^21.
const maxCutWork = 1 << 25

// NewCuts returns the cuts of texts that are encoded without Options.Literal. Added tokens are
// found in the raw text first, leftmost and then longest, and the text between them is encoded
// separately. So any of them is a cut, except a token that is found only in normalized text, that
// absorbs the space before it (lstrip), of which a neighbour may absorb a space at an end, that is
// found only between words (single_word), that is part of another one, of which another one or itself
// ends with a prefix, or in which one begins that is found earlier. A token that begins with a letter
// or a digit is left out too: it would make Next slow. For the places between pieces see borders.
func (t *Tokenizer) NewCuts() *Cuts {
	c := &Cuts{borders: borders{t: t}}
	c.borders.find()
	for _, a := range t.normalized.tokens {
		c.unplain = c.unplain || a.special
	}
	c.findTokens(t)
	return c
}

// findTokens sets c.tokens and what Next needs of them.
func (c *Cuts) findTokens(t *Tokenizer) {
	all := newMatcher()
	for _, a := range t.raw.tokens {
		all.add(a)
	}
	if len(t.normalizers) == 0 {
		for _, a := range t.normalized.tokens {
			all.add(a)
		}
	}
	work := 0
	for _, a := range all.tokens {
		if work += len(a.content) * len(a.content); work > maxCutWork {
			return
		}
	}
	inside, overlapped := make([]bool, len(all.tokens)), make([]bool, len(all.nodes))
	broken := make([]bool, len(all.tokens)) // by a token found earlier: a neighbour, or one in the raw text
	for n, a := range all.tokens {
		later := n >= len(t.raw.tokens)
		broken[n] = strings.TrimLeftFunc(a.content, unicode.IsSpace) != a.content ||
			later && strings.TrimRightFunc(a.content, unicode.IsSpace) != a.content
		for from := range a.content {
			at, ok := 0, true
			for to := from; to < len(a.content) && ok; to++ {
				at, ok = all.nodes[at].next[a.content[to]]
				if i := all.nodes[at].token; ok && i >= 0 && to+1-from < len(a.content) {
					inside[i], broken[n] = true, broken[n] || later
				}
			}
			if ok && from > 0 {
				overlapped[at], broken[n] = true, broken[n] || later
			}
		}
	}
	for i, a := range all.tokens {
		at, safe := 0, !inside[i] && !broken[i] && !a.lstrip && !a.singleWord && !beginsWithWord(a.content)
		for n := range len(a.content) {
			at = all.nodes[at].next[a.content[n]]
			safe = safe && !overlapped[at]
		}
		if safe {
			c.tokens = append(c.tokens, a.content)
			for second := range 256 {
				if len(a.content) == 1 || a.content[1] == byte(second) {
					pair := uint16(a.content[0])<<8 | uint16(second)
					c.pairs[pair>>6] |= 1 << (pair & 63)
				}
			}
			if begin := a.content[:1]; !strings.Contains(c.first, begin) {
				c.first += begin
			}
		}
	}
	slices.Sort(c.tokens)
}

// stretchBytes is the length of the parts of a text in which the first bytes of the tokens are
// searched one after another. That is faster than a look at each position.
const stretchBytes = 512

// Next returns the first place in text[from:to] at which the text may be cut because of the added
// token that begins there; to if there is none. plain is Options.Plain.
func (c *Cuts) Next(text string, from, to int, plain []int) int {
	if len(plain) > 0 && c.unplain {
		return to
	}
	for from < to {
		stretch := text[from:min(from+stretchBytes, to)]
		n := len(stretch)
		for i := range len(c.first) {
			if at := strings.IndexByte(stretch[:n], c.first[i]); at >= 0 {
				n = at
			}
		}
		if from += n; n == len(stretch) {
			continue
		}
		if c.tokenAt(text, from, plain) {
			return from
		}
		from++
	}
	return to
}

// Border returns the first place in text, at or after from, at which it may be cut for any reason, or
// len(text) if there is none. plain is Options.Plain. from must be above 0.
func (c *Cuts) Border(text string, from int, plain []int) int {
	if len(plain) > 0 && c.unplain {
		return len(text)
	}
	for ; from < len(text); from++ {
		if c.borders.at(text, from) || c.tokenAt(text, from, plain) {
			return from
		}
	}
	return len(text)
}

// tokenAt reports whether text may be cut before an added token at offset i.
func (c *Cuts) tokenAt(text string, i int, plain []int) bool {
	rest := text[i:]
	if len(rest) < 2 { // a token of one byte at the end is not worth a cut
		return false
	}
	if pair := uint16(rest[0])<<8 | uint16(rest[1]); c.pairs[pair>>6]>>(pair&63)&1 == 0 {
		return false
	}
	if at, ok := slices.BinarySearch(c.tokens, rest); !ok && (at == 0 || !strings.HasPrefix(rest, c.tokens[at-1])) {
		return false
	}
	_, isPlain := slices.BinarySearch(plain, i)
	return !isPlain
}

// Around returns the tokens that EncodePrompt adds before and after a text. The caller must not
// change them.
func (t *Tokenizer) Around() (before, after []kv.Token) { return t.prefix, t.suffix }
