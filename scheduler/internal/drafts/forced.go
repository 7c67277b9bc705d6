package drafts

import (
	"bytes"
	"math/bits"

	"github.com/coppice-llm/coppice/grammar"
	"github.com/coppice-llm/coppice/kv"
)

const (
	// certain is the length of match that the only allowed token counts as.
	certain = longest
	// likely is the length of match that the longest of several allowed tokens counts as, of which the
	// others are beginnings: the format fixes the next bytes, and tokenizers take the longest token for
	// them nearly always.
	likely = 8
	// mostAllowed bounds the allowed tokens that are compared. More of them are never all beginnings of
	// one token.
	mostAllowed = 64
)

// forced guesses the tokens that a format leaves no choice about: a key of a JSON object, with its
// quotes.
type forced struct {
	at     *grammar.Matcher // after the text
	walk   *grammar.Matcher // scratch: after a draft
	mask   []uint64         // scratch
	vocab  *grammar.Vocabulary
	token  kv.Token // the guess
	length int      // 0: no guess
}

func newForced(format *grammar.Grammar) *forced {
	v := format.Vocabulary()
	f := &forced{at: format.NewMatcher(), walk: format.NewMatcher(), mask: make([]uint64, (v.Size()+63)/64), vocab: v}
	f.token, f.length = f.next(f.at)
	return f
}

func (f *forced) read([]kv.Token) {}

func (f *forced) take(text []kv.Token) (c class, right bool) {
	last := text[len(text)-1]
	c, right = f.guess(), f.length > 0 && f.token == last
	f.length = 0
	if f.at.Accept(last) { // else a stop token: the output has ended
		f.token, f.length = f.next(f.at)
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
		t, n = f.next(f.walk)
	}
	return tokens, classes
}

// next returns the token that must follow in the state of m, and the length of match that it counts as:
// certain, likely, or 0 if there is a choice.
func (f *forced) next(m *grammar.Matcher) (t kv.Token, length int) {
	if m.CanEnd() {
		return 0, 0 // a stop token may follow, too
	}
	m.Mask(f.mask)
	n := 0
	for _, w := range f.mask {
		if n += bits.OnesCount64(w); n > mostAllowed {
			return 0, 0
		}
	}
	if t, n = f.longest(); n == 1 {
		return t, certain
	}
	if n == 0 || !f.begins(f.vocab.Bytes(t)) {
		return 0, 0
	}
	return t, likely
}

// longest returns the token of the mask with the most bytes, and the number of tokens in the mask.
func (f *forced) longest() (t kv.Token, n int) {
	for i, w := range f.mask {
		for ; w != 0; w &= w - 1 {
			one := kv.Token(64*i + bits.TrailingZeros64(w))
			if n++; n == 1 || len(f.vocab.Bytes(one)) > len(f.vocab.Bytes(t)) {
				t = one
			}
		}
	}
	return t, n
}

// begins reports whether text begins with each token of the mask.
func (f *forced) begins(text []byte) bool {
	for i, w := range f.mask {
		for ; w != 0; w &= w - 1 {
			if !bytes.HasPrefix(text, f.vocab.Bytes(kv.Token(64*i+bits.TrailingZeros64(w)))) {
				return false
			}
		}
	}
	return true
}
