package grammar

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/coppice-llm/coppice/kv"
)

// maxTokenBytes bounds the tokens that a grammar allows. Published vocabularies have tokens of
// up to 128 bytes, runs of spaces.
const maxTokenBytes = 1024

// Vocabulary holds the bytes of each token and a trie of them in preorder. It is immutable and
// may be shared by any number of goroutines and grammars.
type Vocabulary struct {
	size int
	blob []byte
	at   []int // the bytes of token t are blob[at[t]:at[t+1]], after specialByte its content if it is special

	specials []kv.Token // those that have a content

	label   []uint32   // by trie node: depth<<8 | last byte; node 0 is the root
	skip    []int32    // by trie node: the first node after its subtree
	ends    []int32    // order[ends[i]:ends[i+1]] are the tokens that end at node i
	order   []kv.Token // tokens of 1 to maxTokenBytes bytes, sorted by bytes
	deep    []uint16   // by trie node: the bytes of the longest token in its subtree
	longest int        // bytes of the longest of them
	written byteSet    // bytes that some of them has as text
}

// specialByte stands in front of the content of special tokens. No text has this byte, so a
// special token is never mistaken for its content.
const specialByte = 0xFF

// NewVocabulary indexes the tokens 0 to size-1 by their bytes, which it copies; the function
// bytes returns those of a token. A grammar never allows tokens without bytes (special tokens,
// unused ids) and tokens over 1,024 bytes. It also never allows a token after which every text of
// the rules needs a byte that no token has. Indexing 128,000 tokens takes some 50 ms.
func NewVocabulary(size int, bytes func(kv.Token) []byte) *Vocabulary {
	return newVocabulary(size, bytes, nil)
}

// NewSpecialVocabulary is [NewVocabulary] for a vocabulary with special tokens that rules may
// allow: content returns the content of a token without bytes, "" if it has none. Such a token is
// allowed only where an Expr of the operation [Special] has its content. A token with the byte
// 0xFF, which no UTF-8 has, counts as one without bytes.
func NewSpecialVocabulary(size int, bytes func(kv.Token) []byte, content func(kv.Token) string) *Vocabulary {
	return newVocabulary(size, bytes, content)
}

func newVocabulary(size int, text func(kv.Token) []byte, content func(kv.Token) string) *Vocabulary {
	v := &Vocabulary{size: max(size, 0), at: make([]int, max(size, 0)+1)}
	for t := range v.size {
		b := text(kv.Token(t))
		if content != nil && bytes.IndexByte(b, specialByte) >= 0 {
			b = nil
		}
		v.blob = append(v.blob, b...)
		n := len(b)
		if n > 0 && n <= maxTokenBytes {
			for _, b := range b {
				v.written.add(b, b)
			}
		} else if n == 0 && content != nil {
			if c := content(kv.Token(t)); c != "" && len(c) < maxTokenBytes {
				v.blob = append(append(v.blob, specialByte), c...)
				v.specials = append(v.specials, kv.Token(t))
				n = len(c) + 1
			}
		}
		v.at[t+1] = len(v.blob)
		if n > 0 && n <= maxTokenBytes {
			v.order = append(v.order, kv.Token(t))
			v.longest = max(v.longest, n)
		}
	}
	v.sort()
	v.plant()
	return v
}

// Size returns the number of tokens; masks have (Size+63)/64 words.
func (v *Vocabulary) Size() int { return v.size }

// Bytes returns the bytes of t, or nil if t has none or is not in the vocabulary. The caller must
// not change them.
func (v *Vocabulary) Bytes(t kv.Token) []byte {
	if int64(t) >= int64(v.size) || v.isSpecial(t) {
		return nil
	}
	return v.code(t)
}

// code returns the bytes of token t of the vocabulary as the trie has them.
func (v *Vocabulary) code(t kv.Token) []byte { return v.blob[v.at[t]:v.at[t+1]:v.at[t+1]] }

// isSpecial reports whether token t of the vocabulary is special and has a content.
func (v *Vocabulary) isSpecial(t kv.Token) bool {
	return len(v.specials) > 0 && v.at[t] < v.at[t+1] && v.blob[v.at[t]] == specialByte
}

// contents returns the contents of the special tokens.
func (v *Vocabulary) contents() (all []string) {
	for _, t := range v.specials {
		all = append(all, string(v.code(t)[1:]))
	}
	return all
}

func (v *Vocabulary) words() int { return (v.size + 63) / 64 }

// sort sorts v.order by bytes. It compares the first eight bytes as one number, which decides
// most comparisons without a call.
func (v *Vocabulary) sort() {
	type keyed struct {
		head  uint64
		token kv.Token
	}
	keys := make([]keyed, len(v.order))
	for i, t := range v.order {
		var head uint64
		for j, b := range v.code(t)[:min(8, len(v.code(t)))] {
			head |= uint64(b) << (56 - 8*j)
		}
		keys[i] = keyed{head, t}
	}
	slices.SortFunc(keys, func(a, b keyed) int {
		if a.head != b.head {
			return cmp.Compare(a.head, b.head)
		}
		return cmp.Or(bytes.Compare(v.code(a.token), v.code(b.token)), int(a.token)-int(b.token))
	})
	for i, k := range keys {
		v.order[i] = k.token
	}
}

// plant builds the trie from v.order, the sorted tokens. Their order is the preorder of the trie.
func (v *Vocabulary) plant() {
	v.label, v.skip, v.ends = []uint32{0}, []int32{0}, []int32{0}
	open := []int32{0} // path from the root to the latest node
	var last []byte
	for i, t := range v.order {
		b := v.code(t)
		shared := 0
		for shared < len(b) && shared < len(last) && b[shared] == last[shared] {
			shared++
		}
		for len(open) > shared+1 {
			v.skip[open[len(open)-1]] = int32(len(v.label))
			open = open[:len(open)-1]
		}
		for depth := shared + 1; depth <= len(b); depth++ {
			open = append(open, int32(len(v.label)))
			v.label = append(v.label, uint32(depth)<<8|uint32(b[depth-1]))
			v.skip = append(v.skip, 0)
			v.ends = append(v.ends, int32(i))
		}
		last = b
	}
	for _, n := range open {
		v.skip[n] = int32(len(v.label))
	}
	v.ends = append(v.ends, int32(len(v.order)))
	v.deep = make([]uint16, len(v.label))
	for i := int32(len(v.label) - 1); i >= 0; i-- {
		v.deep[i] = uint16(v.label[i] >> 8)
		for c := i + 1; c < v.skip[i]; c = v.skip[c] {
			v.deep[i] = max(v.deep[i], v.deep[c])
		}
	}
}
