package tokenizer

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sort"

	"github.com/coppice-llm/coppice/kv"
)

// ErrTooLong and ErrTooHard end [Encoder.EncodeWith].
var (
	ErrTooLong = errors.New("tokenizer: text has more tokens than it may")
	ErrTooHard = errors.New("tokenizer: the regular expressions of tokenizer.json take too many steps on this text")
)

// Options say how a text is encoded. The zero value is [Encoder.Encode].
type Options struct {
	// Prompt adds what the model expects around a prompt, as EncodePrompt.
	Prompt bool
	// MaxTokens bounds the tokens, those around a prompt included. 0: any number.
	MaxTokens int
	// Plain are ascending byte offsets in the text at which no special token begins: what
	// reads like one there is encoded as text. In a file that looks for special tokens
	// after normalization, none of these is found between two others if there is such an
	// offset between them.
	Plain []int
}

// EncodeWith is Encode with bounds on its work, for the texts of strangers: it stops soon
// after MaxTokens tokens, with ErrTooLong, and where a regular expression of the file takes
// too many steps, with ErrTooHard. Both depend on text, options and file alone. After an
// error dst has some first tokens of the text, of ErrTooLong at most one piece more than
// MaxTokens, or fewer.
func (e *Encoder) EncodeWith(dst []kv.Token, text string, o Options) ([]kv.Token, error) {
	defer e.s.trim()
	e.s.bounds = bounds{bounded: true, most: math.MaxInt, tokens: o.MaxTokens, steps: allowance(len(text)), plain: o.Plain}
	if o.MaxTokens > 0 {
		e.s.most = len(dst) + o.MaxTokens
	}
	if o.Prompt {
		dst = e.t.encodePrompt(dst, text, &e.s)
	} else {
		dst = e.t.encode(dst, text, &e.s)
	}
	e.s.stops(dst)
	err := e.s.err
	e.s.bounds = bounds{}
	return dst, err
}

// ControlTokens are the contents of the special tokens, as they stand in text, by id. They
// are what makes a message's text more than text; see Options.Plain.
func (t *Tokenizer) ControlTokens() []string {
	var all []string
	for content, id := range t.added {
		if t.special[id] {
			all = append(all, content)
		}
	}
	slices.SortFunc(all, func(a, b string) int { return int(t.added[a]) - int(t.added[b]) })
	return all
}

// bounds are those of one call of EncodeWith.
type bounds struct {
	bounded bool
	most    int // length of dst that is too long when exceeded
	tokens  int // the same as it was asked for
	steps   int // of regular expressions, that are left
	plain   []int
	err     error
}

// stops reports whether encoding is over: dst has too many tokens, or the steps have run out.
func (s *scratch) stops(dst []kv.Token) bool {
	if s == nil || !s.bounded {
		return false
	}
	switch {
	case s.err != nil:
	case len(dst) > s.most:
		s.err = fmt.Errorf("%w: over %d", ErrTooLong, s.tokens)
	case s.steps <= 0:
		s.err = ErrTooHard
	}
	return s.err != nil
}

// exceeds reports whether a piece of so many symbols, of which a token stands for at most
// longest, can't but have too many tokens: it is not merged then.
func (s *scratch) exceeds(dst []kv.Token, symbols, longest int) bool {
	if !s.bounded || s.most == math.MaxInt || (symbols+longest-1)/longest <= s.most-len(dst) {
		return false
	}
	if s.err == nil {
		s.err = fmt.Errorf("%w: over %d", ErrTooLong, s.tokens)
	}
	return true
}

// allowed is where the steps of regular expressions are counted: those of the call, or own.
func (s *scratch) allowed(own *int) *int {
	if s == nil || !s.bounded {
		return own
	}
	return &s.steps
}

// plainAfter are the offsets at which no special token begins, from one on.
func (s *scratch) plainAfter(from int) []int {
	if s == nil || len(s.plain) == 0 {
		return nil
	}
	return s.plain[sort.SearchInts(s.plain, from):]
}

// plainBetween reports whether one of them is in [lo, hi).
func (s *scratch) plainBetween(lo, hi int) bool {
	rest := s.plainAfter(lo)
	return len(rest) > 0 && rest[0] < hi
}
