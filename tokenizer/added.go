package tokenizer

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/coppice-llm/coppice/kv"
)

// added is a token that is searched for in text before the pre-tokenizer runs.
type added struct {
	content        string
	id             kv.Token
	lstrip, rstrip bool // absorb the white space next to it
	singleWord     bool // only matches where no word character is adjacent
	special        bool
}

// matcher finds added tokens in text: the leftmost, and among those that begin at the same byte
// the longest (huggingface/tokenizers, added_vocabulary.rs).
type matcher struct {
	tokens []added
	first  [256]bool // the first bytes of all tokens
	nodes  []trieNode
}

// trieNode is a prefix of some token; nodes[0] is the empty prefix.
type trieNode struct {
	next  map[byte]int
	token int // index into tokens of the token that ends here, or -1
}

func newMatcher() *matcher {
	return &matcher{nodes: []trieNode{{next: map[byte]int{}, token: -1}}}
}

// add adds the token a, whose content must not be empty. Of several tokens with the same content,
// the matcher finds the one added last.
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

// longest returns the longest token that text begins with, or nil if there is none. With plain
// set, it ignores special tokens.
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

// next finds the first token in text[from:]. It returns the token and the bytes text[lo:hi] that
// it covers: the content and, for a token with lstrip or rstrip, the white space before or after
// it, but none before from. If there is no token, a is nil, and lo and hi are len(text). plain
// lists ascending offsets in text at which no special token is recognised; with literal they are
// recognised nowhere.
func (m *matcher) next(text string, from int, plain []int, literal bool) (a *added, lo, hi int) {
	for i := from; i < len(text); {
		if !m.first[text[i]] {
			i++
			continue
		}
		for len(plain) > 0 && plain[0] < i {
			plain = plain[1:]
		}
		a := m.longest(text[i:], literal || len(plain) > 0 && plain[0] == i)
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

// isWord reports whether r matches \w of Unicode Technical Standard 18, annex C, which the
// format's single_word refers to.
func isWord(r rune) bool {
	return unicode.In(r, unicode.L, unicode.M, unicode.Nd, unicode.Nl, unicode.Pc,
		unicode.Other_Alphabetic, unicode.Join_Control)
}
