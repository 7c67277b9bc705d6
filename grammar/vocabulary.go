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
	at   []int // the bytes of token t are blob[at[t]:at[t+1]]

	label   []uint32   // by trie node: depth<<8 | last byte; node 0 is the root
	skip    []int32    // by trie node: the first node after its subtree
	ends    []int32    // order[ends[i]:ends[i+1]] are the tokens that end at node i
	order   []kv.Token // tokens of 1 to maxTokenBytes bytes, sorted by bytes
	longest int        // bytes of the longest of them
	written byteSet    // bytes that some of them has
}

// NewVocabulary indexes the tokens 0 to size-1 by their bytes, which it copies; the function
// bytes returns those of a token. A grammar never allows tokens without bytes (special tokens,
// unused ids) and tokens over 1,024 bytes. It also never allows a token after which every text of
// the rules needs a byte that no token has. Indexing 128,000 tokens takes some 50 ms.
func NewVocabulary(size int, bytes func(kv.Token) []byte) *Vocabulary {
	v := &Vocabulary{size: max(size, 0), at: make([]int, max(size, 0)+1)}
	for t := range v.size {
		v.blob = append(v.blob, bytes(kv.Token(t))...)
		v.at[t+1] = len(v.blob)
		if n := v.at[t+1] - v.at[t]; n > 0 && n <= maxTokenBytes {
			v.order = append(v.order, kv.Token(t))
			v.longest = max(v.longest, n)
			for _, b := range v.blob[v.at[t]:] {
				v.written.add(b, b)
			}
		}
	}
	v.sort()
	v.plant()
	return v
}

// Size returns the number of tokens; masks have (Size+63)/64 words.
func (v *Vocabulary) Size() int { return v.size }

// Bytes returns the bytes of t, or nil if t is not in the vocabulary. The caller must not change
// them.
func (v *Vocabulary) Bytes(t kv.Token) []byte {
	if int64(t) >= int64(v.size) {
		return nil
	}
	return v.blob[v.at[t]:v.at[t+1]:v.at[t+1]]
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
		for j, b := range v.Bytes(t)[:min(8, len(v.Bytes(t)))] {
			head |= uint64(b) << (56 - 8*j)
		}
		keys[i] = keyed{head, t}
	}
	slices.SortFunc(keys, func(a, b keyed) int {
		if a.head != b.head {
			return cmp.Compare(a.head, b.head)
		}
		return cmp.Or(bytes.Compare(v.Bytes(a.token), v.Bytes(b.token)), int(a.token)-int(b.token))
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
		b := v.Bytes(t)
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
}
