package drafts

import (
	"bytes"
	"math/bits"

	"github.com/coppice-llm/coppice/grammar"
	"github.com/coppice-llm/coppice/kv"
)

// The lengths of match that guesses of a format count as.
const (
	certain = longest // the only allowed token
	again   = 16      // of tokens that are beginnings of one another, the one that came before from the same ones
	likely  = 8       // the longest of these: tokenizers take it nearly always where the format fixes the bytes
	chosen  = 4       // of other tokens, the one that came before from the same ones
)

const (
	// mostAllowed bounds the allowed tokens that are compared: of more, none can be expected.
	mostAllowed = 64
	// choices is the number of sets of allowed tokens for which forced remembers what came.
	choices = 256
)

// forced guesses the tokens that a format leaves no choice about: a key of a JSON object, with its
// quotes. Where it leaves a choice of a few tokens, such as whether a space follows a colon, forced
// guesses what came when the same tokens were allowed before.
type forced struct {
	at      *grammar.Matcher // after the text
	walk    *grammar.Matcher // scratch: after a draft
	mask    []uint64         // scratch
	allowed []kv.Token       // scratch: the tokens of mask
	vocab   *grammar.Vocabulary
	came    [choices]choice // by hash of the allowed tokens
	set     uint32          // hash of those at the next token; 0: too many
	token   kv.Token        // the guess
	length  int             // 0: no guess
}

// choice has the token that came when certain tokens were allowed.
type choice struct {
	set   uint32
	token kv.Token
}

func newForced(format *grammar.Grammar) *forced {
	v := format.Vocabulary()
	f := &forced{at: format.NewMatcher(), walk: format.NewMatcher(), mask: make([]uint64, (v.Size()+63)/64), vocab: v, allowed: make([]kv.Token, 0, mostAllowed)}
	f.token, f.length, f.set = f.next(f.at)
	return f
}

func (f *forced) read([]kv.Token) {}

func (f *forced) take(text []kv.Token) (c class, right bool) {
	last := text[len(text)-1]
	c, right = f.guess(), f.length > 0 && f.token == last
	if f.set != 0 {
		f.came[f.set%choices] = choice{f.set, last}
	}
	f.length, f.set = 0, 0
	if f.at.Accept(last) { // else a stop token: the output has ended
		f.token, f.length, f.set = f.next(f.at)
	}
	return c, right
}

func (f *forced) guess() class {
	if f.length == 0 {
		return none
	}
	return ofLength(f.length, lone)
}

func (f *forced) draft(_ []kv.Token, most int, tokens []kv.Token, classes []class) ([]kv.Token, []class) {
	f.walk.CopyFrom(f.at)
	t, n := f.token, f.length
	for range most {
		if n == 0 {
			break
		}
		tokens, classes = append(tokens, t), append(classes, ofLength(n, lone))
		f.walk.Accept(t)
		t, n, _ = f.next(f.walk)
	}
	return tokens, classes
}

// next returns the guess at the token that follows in the state of m, the length of match that it counts as,
// 0 for no guess, and the hash of the allowed tokens, 0 if they are too many.
func (f *forced) next(m *grammar.Matcher) (t kv.Token, length int, set uint32) {
	if m.CanEnd() || !f.list(m) { // where the text can end, a stop token may follow, too
		return 0, 0, 0
	}
	set = 1
	for _, one := range f.allowed {
		if set = set*0x01000193 ^ uint32(one); len(f.vocab.Bytes(one)) > len(f.vocab.Bytes(t)) || t == 0 {
			t = one
		}
	}
	set |= 1
	if len(f.allowed) == 1 {
		return t, certain, 0
	}
	fixed := f.begins(f.vocab.Bytes(t))
	switch c := f.came[set%choices]; {
	case c.set == set && fixed:
		return c.token, again, set
	case c.set == set:
		return c.token, chosen, set
	case fixed:
		return t, likely, set
	}
	return 0, 0, set
}

// list sets f.allowed to the tokens that m allows, and reports whether there are any, and at most
// mostAllowed.
func (f *forced) list(m *grammar.Matcher) bool {
	m.Mask(f.mask)
	f.allowed = f.allowed[:0]
	for i, w := range f.mask {
		if w != 0 && len(f.allowed)+bits.OnesCount64(w) > mostAllowed {
			return false
		}
		for ; w != 0; w &= w - 1 {
			f.allowed = append(f.allowed, kv.Token(64*i+bits.TrailingZeros64(w)))
		}
	}
	return len(f.allowed) > 0
}

// begins reports whether text begins with each of the allowed tokens.
func (f *forced) begins(text []byte) bool {
	for _, t := range f.allowed {
		if !bytes.HasPrefix(text, f.vocab.Bytes(t)) {
			return false
		}
	}
	return true
}
