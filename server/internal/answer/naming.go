package answer

import (
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/coppice-llm/coppice/internal/jsontext"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/tokenizer"
)

// naming gives tokens their names in answers. It belongs to one answer.
type naming struct {
	tok     *tokenizer.Tokenizer // nil: tokens have no text
	special map[kv.Token]string  // cache of the decoded special tokens
}

// text returns the text of token t, which need not be UTF-8; false if t is outside of the
// vocabulary.
func (n *naming) text(t kv.Token) (_ string, ok bool) {
	if n.tok == nil || uint64(t) >= uint64(n.tok.VocabSize()) {
		return "", false
	}
	if !n.tok.Special(t) {
		return n.tok.Text(t), true
	}
	s, ok := n.special[t]
	if !ok {
		s = string(n.tok.Decode(nil, []kv.Token{t}, false))
		if n.special == nil {
			n.special = map[kv.Token]string{}
		}
		n.special[t] = s
	}
	return s, true
}

// append writes the name of t: its text, or "bytes:\xe5\x85" if that is not UTF-8, as in
// OpenAI's completions. So tokens that are different invalid bytes keep different names.
func (n *naming) append(dst []byte, t kv.Token) []byte {
	s, ok := n.text(t)
	if !ok || utf8.ValidString(s) {
		return n.appendText(dst, t)
	}
	dst = append(dst, `"bytes:`...)
	for i := range len(s) {
		dst = append(dst, '\\', '\\', 'x', jsontext.Hex[s[i]>>4], jsontext.Hex[s[i]&0xf])
	}
	return append(dst, '"')
}

// appendText writes the text of t, or "token_id:5" if it has none, as vLLM does.
func (n *naming) appendText(dst []byte, t kv.Token) []byte {
	if s, ok := n.text(t); ok {
		return jsontext.AppendString(dst, s)
	}
	dst = append(dst, `"token_id:`...)
	dst = strconv.AppendUint(dst, uint64(t), 10)
	return append(dst, '"')
}

// appendBytes writes the bytes of t as an array of numbers, or null if t has no text.
func (n *naming) appendBytes(dst []byte, t kv.Token) []byte {
	s, ok := n.text(t)
	if !ok {
		return append(dst, "null"...)
	}
	return jsontext.AppendArray(dst, len(s), func(dst []byte, i int) []byte { return strconv.AppendUint(dst, uint64(s[i]), 10) })
}

// place returns where the text of t begins in the whole text, counted in code points, and the
// number of code points begun up to the end of t. begun is that number before t. A special token
// is not part of the text: both results are begun. For invalid UTF-8 the results are approximate.
func (n *naming) place(t kv.Token, begun int) (at, after int) {
	if n.tok == nil || n.tok.Special(t) {
		return begun, begun
	}
	s := n.tok.Text(t)
	at, after = begun, begun
	for i := range len(s) {
		if s[i]&0xC0 != 0x80 {
			after++
		} else if i == 0 && begun > 0 { // continues the code point of the token before
			at--
		}
	}
	return at, after
}

// same reports whether a and b have the same name. A JSON object must not repeat a key.
func (n *naming) same(a, b kv.Token) bool {
	if a == b {
		return true
	}
	s, known := n.text(a)
	t, other := n.text(b)
	return known && other && s == t
}

// among reports whether t has the same name as one of tokens.
func (n *naming) among(t kv.Token, tokens []kv.Token) bool {
	return slices.ContainsFunc(tokens, func(o kv.Token) bool { return n.same(t, o) })
}
