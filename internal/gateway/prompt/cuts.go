package prompt

import (
	"slices"
	"strings"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/tokenizer"
)

// cuts holds the added tokens ("<|im_start|>") before which a text may be cut in two such that
// the tokens of both parts together are those of the whole text. [tokenizer.Tokenizer] searches for
// added tokens first, leftmost and then longest, and encodes the text between them separately. So a
// token is safe to cut at if
//
//   - no added token contains it, or ends with a prefix of it, itself included: then it is found
//     wherever it occurs, wherever the search begins;
//   - it begins with punctuation, so that the text before it neither continues into it as a word nor
//     takes a space from it;
//   - it does not absorb the space before it (lstrip), does not require that no word is adjacent
//     (single_word), and is not matched only after a normalization that depends on its neighbours
//     (normalized).
//
// The part that begins with the token is never at the beginning of the text, which some
// tokenizers treat specially; nor does the encoder see it as such, because the token itself
// precedes the encoded text.
//
// The tokenizer does not expose the properties of the third item, so they are tested: a token is
// left out if any of probes before or after it changes the result. In addition, each segment
// must begin with its token, otherwise the whole text is encoded at once.
type cuts struct {
	may   [256]bool // first bytes of the tokens
	nodes []cutNode // a trie; nodes[0] is the root
}

// cutNode is a node of the trie: the beginning of one or more tokens.
type cutNode struct {
	bytes string  // the bytes that may come next
	next  []int32 // next[i] is the node after bytes[i]
	ends  bool    // a token ends here, and none continues
	id    kv.Token
}

// maxCuts bounds the number of tokens that are safe to cut at. The tokens that texts contain
// have the lowest ids; the hundreds of tokens after them are placeholders.
const maxCuts = 512

// probes are neighbours that may change how a token is found: spaces that may be removed or
// added, letters and digits that form a word, combining marks, and parts of tokens. U+0338 forms
// one rune with a > before it.
var probes = []string{
	"", "a", " ", "a ", " a", "\n", "a\n", "\u00a0", "_", "9", "'s", "\u0301", "\u0338", "\u0323\u0301e", "e\u0301", "\u1100", "<", "|", ">", "\u2581", "A\u0130\ufb01", "\t ", "\xff",
}

// newCuts finds the tokens of tok that are safe to cut at.
func newCuts(tok *tokenizer.Tokenizer) *cuts {
	c := &cuts{nodes: []cutNode{{}}}
	all := addedTokens(tok)
	alone := apart(all)
	n := 0
	for i, a := range all {
		if n == maxCuts {
			break
		}
		if alone[i] && punctuation(a.content[0]) && independent(tok, a) {
			c.add(a)
			n++
		}
	}
	return c
}

// addedToken is an added token with its text.
type addedToken struct {
	content string
	id      kv.Token
}

// addedTokens returns the added tokens of tok, ascending by id.
func addedTokens(tok *tokenizer.Tokenizer) []addedToken {
	var all []addedToken
	for i := range tok.VocabSize() {
		id := kv.Token(i)
		content := tok.Text(id)
		if tok.Special(id) { // the first token of a text may be decoded differently, so decode the second
			once := tok.Decode(nil, []kv.Token{id}, false)
			content = string(tok.Decode(nil, []kv.Token{id, id}, false)[len(once):])
		}
		if found, ok := tok.AddedToken(content); ok && found == id && content != "" {
			all = append(all, addedToken{content, id})
		}
	}
	return all
}

// apart reports for each token of all whether no token contains it (other than itself) or ends
// with a prefix of it (itself included).
func apart(all []addedToken) []bool {
	ends := map[string]bool{}   // proper suffixes of tokens
	inside := map[string]bool{} // proper substrings of tokens that are as long as some token
	sizes := map[int]bool{}
	for _, a := range all {
		sizes[len(a.content)] = true
	}
	for _, a := range all {
		for i := range len(a.content) {
			if i > 0 {
				ends[a.content[i:]] = true
			}
			for size := range sizes {
				if i+size <= len(a.content) && size < len(a.content) {
					inside[a.content[i:i+size]] = true
				}
			}
		}
	}
	alone := make([]bool, len(all))
	for i, a := range all {
		alone[i] = !inside[a.content]
		for n := 1; n < len(a.content); n++ {
			alone[i] = alone[i] && !ends[a.content[:n]]
		}
	}
	return alone
}

// punctuation reports whether c is ASCII punctuation other than an underscore, which counts as a
// letter in many tokenizers.
func punctuation(c byte) bool {
	return '!' <= c && c <= '~' && c != '_' && (c < '0' || c > '9') && (c|0x20 < 'a' || c|0x20 > 'z')
}

// independent reports whether the tokens of every text probe + a + probe are those of the first
// probe followed by those of the rest, which begin with a.
func independent(tok *tokenizer.Tokenizer, a addedToken) bool {
	var whole, parts []kv.Token
	for _, behind := range probes {
		alone := tok.Encode(nil, a.content+behind)
		if len(alone) == 0 || alone[0] != a.id {
			return false
		}
		for _, before := range probes {
			whole = tok.Encode(whole[:0], before+a.content+behind)
			parts = append(tok.Encode(parts[:0], before), alone...)
			if !slices.Equal(whole, parts) {
				return false
			}
		}
	}
	return true
}

// add adds a token to the trie. No token is a prefix of another, see apart.
func (c *cuts) add(a addedToken) {
	at := int32(0)
	for i := range len(a.content) {
		node := &c.nodes[at]
		j := strings.IndexByte(node.bytes, a.content[i])
		if j < 0 {
			node.bytes += a.content[i : i+1]
			node.next = append(node.next, int32(len(c.nodes)))
			at = int32(len(c.nodes))
			c.nodes = append(c.nodes, cutNode{})
			continue
		}
		at = node.next[j]
	}
	c.nodes[at].ends, c.nodes[at].id = true, a.id
	c.may[a.content[0]] = true
}

// find returns the trie node of the token that text begins with, nil if there is none.
func (c *cuts) find(text string) *cutNode {
	node := &c.nodes[0]
	for i := 0; !node.ends; i++ {
		if i == len(text) {
			return nil
		}
		j := strings.IndexByte(node.bytes, text[i])
		if j < 0 {
			return nil
		}
		node = &c.nodes[node.next[j]]
	}
	return node
}

// at returns the token that text begins with. It panics if there is none.
func (c *cuts) at(text string) kv.Token {
	if node := c.find(text); node != nil {
		return node.id
	}
	panic("prompt: a segment begins with no token that text is cut at: " + text)
}

// If all tokens begin with one of at most soughtBytes bytes, these bytes are searched one after another
// in stretches of stretchBytes, which is faster than checking each position.
const (
	soughtBytes  = 4
	stretchBytes = 512
)

// next returns the index in text, at or after from, of the first token to cut at, or len(text)
// if there is none.
func (c *cuts) next(text string, from int) int {
	begin := c.nodes[0].bytes
	for from < len(text) {
		if len(begin) <= soughtBytes {
			stretch := text[from:min(from+stretchBytes, len(text))]
			n := len(stretch)
			for i := range len(begin) {
				if at := strings.IndexByte(stretch[:n], begin[i]); at >= 0 {
					n = at
				}
			}
			if from += n; n == len(stretch) {
				continue
			}
		}
		if c.may[text[from]] && c.find(text[from:]) != nil {
			return from
		}
		from++
	}
	return len(text)
}
