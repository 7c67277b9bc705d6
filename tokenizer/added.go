package tokenizer

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/coppice-llm/coppice/kv"
)

// added is a token that is looked for in text before anything else.
type added struct {
	content        string
	id             kv.Token
	lstrip, rstrip bool // swallow the white space beside it
	singleWord     bool // only where no word goes on beside it
	special        bool
}

// matcher finds added tokens in text: the leftmost, and of those that begin at
// the same byte the longest (huggingface/tokenizers, added_vocabulary.rs).
type matcher struct {
	tokens []added
	first  [256]bool // the bytes that a token may begin with
	nodes  []trieNode
}

// trieNode is a prefix of some token; nodes[0] is the empty one.
type trieNode struct {
	next  map[byte]int
	token int // index into tokens of the one that ends here, -1 if none does
}

func newMatcher() *matcher {
	return &matcher{nodes: []trieNode{{next: map[byte]int{}, token: -1}}}
}

// add makes a token known; of two with the same content the last one counts.
func (m *matcher) add(a added) {
	at := 0
	for i := range len(a.content) {
		b := a.content[i]
		next, ok := m.nodes[at].next[b]
		if !ok {
			next = len(m.nodes)
			m.nodes[at].next[b] = next
			m.nodes = append(m.nodes, trieNode{next: map[byte]int{}, token: -1})
		}
		at = next
	}
	m.first[a.content[0]] = true
	m.nodes[at].token = len(m.tokens)
	m.tokens = append(m.tokens, a)
}

// longest is the longest token that text begins with, nil if there is none; plain: that is
// not special.
func (m *matcher) longest(text string, plain bool) *added {
	at, token := 0, -1
	for i := range len(text) {
		next, ok := m.nodes[at].next[text[i]]
		if !ok {
			break
		}
		at = next
		if n := m.nodes[at].token; n >= 0 && !(plain && m.tokens[n].special) {
			token = m.nodes[at].token
		}
	}
	if token < 0 {
		return nil
	}
	return &m.tokens[token]
}

// next is the first token in text[from:], with the range [lo, hi) that it takes
// there, swallowed space included. Without one it is nil, and the range is the
// empty one at the end of text. No special token begins at the ascending offsets plain.
func (m *matcher) next(text string, from int, plain []int) (a *added, lo, hi int) {
	for i := from; i < len(text); {
		if !m.first[text[i]] {
			i++
			continue
		}
		for len(plain) > 0 && plain[0] < i {
			plain = plain[1:]
		}
		a := m.longest(text[i:], len(plain) > 0 && plain[0] == i)
		if a == nil {
			i++
			continue
		}
		lo, hi := i, i+len(a.content)
		i = hi
		if a.singleWord && (endsInWord(text[:lo]) || beginsWithWord(text[hi:])) {
			continue
		}
		if a.lstrip {
			lo = max(from, len(strings.TrimRightFunc(text[:lo], unicode.IsSpace)))
		}
		if a.rstrip {
			hi = len(text) - len(strings.TrimLeftFunc(text[hi:], unicode.IsSpace))
		}
		return a, lo, hi
	}
	return nil, len(text), len(text)
}

func endsInWord(s string) bool {
	r, _ := utf8.DecodeLastRuneInString(s)
	return isWord(r)
}

func beginsWithWord(s string) bool {
	r, _ := utf8.DecodeRuneInString(s)
	return isWord(r)
}

// isWord is \w of Unicode Technical Standard 18, annex C, which the format's
// single_word refers to.
func isWord(r rune) bool {
	return unicode.In(r, unicode.L, unicode.M, unicode.Nd, unicode.Nl, unicode.Pc,
		unicode.Other_Alphabetic, unicode.Join_Control)
}
