package tokenizer

import (
	"slices"
	"strings"
	"unicode"

	"github.com/coppice-llm/coppice/kv"
)

// Cuts finds the places before which a text may be cut such that the tokens of both parts
// together are those of the whole text: added tokens ("<|im_start|>") that are found wherever
// they occur. It is immutable and safe for concurrent use.
type Cuts struct {
	tokens []string // sorted; none is a prefix of another
	first  string   // their first bytes
}

// maxCutWork bounds the sum of the squared lengths of a file's added tokens. If it is larger, there
// are no cuts: to find them takes time in proportion. Files in use have under 2^21.
const maxCutWork = 1 << 25

// NewCuts returns the cuts of texts that are encoded without Options.Plain. Added tokens are
// found in the raw text first, leftmost and then longest, and the text between them is encoded
// separately. So any of them is a cut, except a token that is found only in normalized text, that
// absorbs the space before it (lstrip), of which a neighbour may absorb a space at an end, that is
// found only between words (single_word), that is part of another one, of which another one or itself
// ends with a prefix, or in which one begins that is found earlier. A token that begins with a letter
// or a digit is left out too: it would make Next slow.
func (t *Tokenizer) NewCuts() *Cuts {
	all, c := newMatcher(), &Cuts{}
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
			return c
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
			if begin := a.content[:1]; !strings.Contains(c.first, begin) {
				c.first += begin
			}
		}
	}
	slices.Sort(c.tokens)
	return c
}

// stretchBytes is the length of the parts of a text in which the first bytes of the tokens are
// searched one after another. That is faster than a look at each position.
const stretchBytes = 512

// Next returns the first place in text, at or after from, at which text may be cut, or len(text)
// if there is none.
func (c *Cuts) Next(text string, from int) int {
	for from < len(text) {
		stretch := text[from:min(from+stretchBytes, len(text))]
		n := len(stretch)
		for i := range len(c.first) {
			if at := strings.IndexByte(stretch[:n], c.first[i]); at >= 0 {
				n = at
			}
		}
		if from += n; n == len(stretch) {
			continue
		}
		if i, ok := slices.BinarySearch(c.tokens, text[from:]); ok || i > 0 && strings.HasPrefix(text[from:], c.tokens[i-1]) {
			return from
		}
		from++
	}
	return len(text)
}

// Around returns the tokens that EncodePrompt adds before and after a text. The caller must not
// change them.
func (t *Tokenizer) Around() (before, after []kv.Token) { return t.prefix, t.suffix }
