package prompt

import (
	"slices"
	"strings"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/tokenizer"
)

// cuts are the added tokens ("<|im_start|>") at which a text may be cut in two before
// them, so that the tokens of both parts are those of the text. [tokenizer.Tokenizer]
// looks for added tokens before all else, the leftmost first and the longest of those,
// and encodes what is between them on its own. So an added token is one of them if
//
//   - no other one holds it, nor ends with what it begins with, nor does it itself:
//     then it is found wherever it stands, from wherever the search begins;
//   - it begins with punctuation, so that what is before it neither runs on into it as
//     a word nor swallows a space of it;
//   - it does not take the space before it (lstrip), nor does it want no word beside it
//     (single_word), nor is it looked for only after normalization in which what is
//     around it has a say (normalized).
//
// The part that begins with it is never at the beginning of the text, which to some
// tokenizers is a place of its own, nor is it there for the encoder, for the token
// itself stands there.
//
// The tokenizer does not tell the third kind of property, so it is tried out: a token
// is left out if anything in probes, before or behind it, makes a difference. And each
// segment has to begin with its token, or the whole text is encoded in one.
type cuts struct {
	may   [256]bool // the bytes that they begin with
	nodes []cutNode // a trie; nodes[0] is the root
}

// cutNode is a prefix of some token.
type cutNode struct {
	bytes string  // that go on from here
	next  []int32 // where to
	ends  bool    // a token ends here; none goes on
	id    kv.Token
}

// maxCuts bounds the tokens that are tried out. The models' own come first; hundreds
// more are placeholders.
const maxCuts = 512

// probes are what may make a difference beside a token: spaces that may be taken away
// or put there, letters and digits that make a word, marks that combine with what is
// before them, and parts of tokens. U+0338 makes one rune of it and a > before it.
var probes = []string{
	"", "a", " ", "a ", " a", "\n", "a\n", "\u00a0", "_", "9", "'s", "\u0301", "\u0338", "\u0323\u0301e", "e\u0301", "\u1100", "<", "|", ">", "\u2581", "A\u0130\ufb01", "\t ", "\xff",
}

// newCuts finds out which tokens of tok they are.
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

type addedToken struct {
	content string
	id      kv.Token
}

// addedTokens are those of tok, ascending by id.
func addedTokens(tok *tokenizer.Tokenizer) []addedToken {
	var all []addedToken
	for i := range tok.VocabSize() {
		id := kv.Token(i)
		content := tok.Text(id)
		if tok.Special(id) { // the first of a text may be written otherwise
			once := tok.Decode(nil, []kv.Token{id}, false)
			content = string(tok.Decode(nil, []kv.Token{id, id}, false)[len(once):])
		}
		if found, ok := tok.AddedToken(content); ok && found == id && content != "" {
			all = append(all, addedToken{content, id})
		}
	}
	return all
}

// apart tells of each token whether no token, itself included, overlaps it from before
// or holds it.
func apart(all []addedToken) []bool {
	ends := map[string]bool{}   // of tokens, but not whole ones
	inside := map[string]bool{} // parts of tokens that are as long as some token, likewise
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

func punctuation(c byte) bool {
	return '!' <= c && c <= '~' && c != '_' && (c < '0' || c > '9') && (c|0x20 < 'a' || c|0x20 > 'z')
}

// independent tells whether no probe before or behind a makes a difference.
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

// find is the node of the token that text begins with, nil if there is none.
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

// at is the token that text, a segment, begins with.
func (c *cuts) at(text string) kv.Token {
	if node := c.find(text); node != nil {
		return node.id
	}
	panic("prompt: a segment begins with no token that text is cut at: " + text)
}

// Up to soughtBytes the bytes that tokens begin with are looked for one after the
// other, stretchBytes of the text at a time, which is faster than to look at each.
const (
	soughtBytes  = 4
	stretchBytes = 512
)

// next is where in text[from:] the first of the tokens begins, len(text) if there is
// none.
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
