package tokenizer

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sort"

	"github.com/coppice-llm/coppice/kv"
)

// Errors of [Encoder.EncodeWith]. ErrTooLong, which is wrapped, means that the text has more
// tokens than Options.MaxTokens; ErrTooHard means that a regular expression of the file takes too
// many steps on the text. ErrScratch means that merging
// a piece needs larger buffers than Options.Scratch permits.
var (
	ErrTooLong = errors.New("tokenizer: text has more tokens than it may")
	ErrTooHard = errors.New("tokenizer: the regular expressions of tokenizer.json take too many steps on this text")
	ErrScratch = errors.New("tokenizer: a piece of the text needs larger buffers")
)

// Options configures an encoding. The zero value is that of [Tokenizer.Encode].
type Options struct {
	// Prompt adds the special tokens that the model expects around a prompt, like EncodePrompt.
	Prompt bool
	// MaxTokens bounds the number of tokens, special ones of Prompt included. 0: no bound.
	MaxTokens int
	// Scratch bounds the bytes of the buffers for merging one piece: PieceBytes for each byte of the
	// piece. 0: no bound.
	Scratch int
	// Plain lists ascending byte offsets in the text at which no special token is recognised:
	// text that begins there and looks like a special token is encoded as text. Some files search
	// for special tokens in the normalized text, where these offsets are not valid. There the
	// text between two tokens that were found before normalization is encoded without any special
	// token if it contains an offset of Plain.
	Plain []int
	// Literal recognises no special token anywhere: all of the text is encoded as text.
	Literal bool
	// Inside says that the text is the part of a longer one after a place of [Cuts]: nothing that a
	// file puts at the beginning of a text is put there.
	Inside bool
	// Steps bounds the steps of regular expressions. 0: [Allowance] of the length of the text. A part
	// may take the steps that the parts before have left: see [Encoder.StepsLeft].
	Steps int
}

// EncodeWith is Encode with bounds on its work, for untrusted texts. It stops soon after
// o.MaxTokens tokens with an error that wraps ErrTooLong, and with ErrTooHard if a regular
// expression of the file takes too many steps. Whether an error occurs depends only on the text,
// the options and the tokenizer.
//
// After an error the returned slice has dst and some of the first tokens of the text. After
// ErrTooLong these are at most MaxTokens plus the tokens of one pre-token. They may be fewer than
// MaxTokens, because a pre-token that must have too many tokens is refused before it is merged.
func (e *Encoder) EncodeWith(dst []kv.Token, text string, o Options) ([]kv.Token, error) {
	defer e.s.trim()
	e.s.bounds = bounds{bounded: true, most: math.MaxInt, tokens: o.MaxTokens, steps: Allowance(len(text)), scratch: o.Scratch,
		plain: o.Plain, literal: o.Literal, inside: o.Inside}
	if o.Steps > 0 {
		e.s.steps = o.Steps
	}
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
	e.stepsLeft = e.s.steps
	e.s.bounds = bounds{}
	return dst, err
}

// StepsLeft returns the steps of regular expressions that the last call of EncodeWith might still have
// taken.
func (e *Encoder) StepsLeft() int { return e.stepsLeft }

// ControlTokens returns the contents of the special tokens, ordered by id. In untrusted text
// they would act as control tokens; see Options.Plain.
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

// bounds are the limits of one call of EncodeWith.
type bounds struct {
	bounded bool
	most    int // len(dst) may not exceed it
	tokens  int // the limit as requested, for the final check
	steps   int // steps of regular expressions that are left
	scratch int // Options.Scratch
	plain   []int
	literal bool // Options.Literal
	inside  bool // Options.Inside, until the first added token
	err     error
}

// stops reports whether encoding must stop: dst has too many tokens, or no steps are left. It
// sets s.err if so.
func (s *scratch) stops(dst []kv.Token) bool {
	if !s.bounded {
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

// exceeds reports whether a piece certainly has too many tokens: more than s.most, the limit of
// the call, leaves after the tokens in dst. symbols is the number of symbols of the piece, and
// longest the largest number of symbols that one token covers, so the piece has at least
// symbols/longest tokens. If so, exceeds sets s.err, and the piece must not be merged.
func (s *scratch) exceeds(dst []kv.Token, symbols, longest int) bool {
	if !s.bounded || s.most == math.MaxInt || (symbols+longest-1)/longest <= s.most-len(dst) {
		return false
	}
	if s.err == nil {
		s.err = fmt.Errorf("%w: over %d", ErrTooLong, s.tokens)
	}
	return true
}

// PieceBytes is the most memory, in bytes, that merging a piece takes for each byte of the piece: its
// symbol, its node, and two places in the queue of merges.
const PieceBytes = 4 + 20 + 2*8

// unfit reports whether a piece of that many bytes needs larger buffers than the bound permits. It
// sets s.err if so.
func (s *scratch) unfit(bytes int) bool {
	if !s.bounded || s.scratch == 0 || bytes <= s.scratch/PieceBytes {
		return false
	}
	if s.err == nil {
		s.err = fmt.Errorf("%w: %d bytes without a place to cut", ErrScratch, bytes)
	}
	return true
}

// allowed returns the counter of the regular-expression steps that are left: that of the call of
// EncodeWith, or own if the call has no bounds.
func (s *scratch) allowed(own *int) *int {
	if !s.bounded {
		return own
	}
	return &s.steps
}

// plainAfter returns the offsets of Options.Plain at or after from.
func (s *scratch) plainAfter(from int) []int {
	return s.plain[sort.SearchInts(s.plain, from):]
}

// plainBetween reports whether an offset of Options.Plain is in [lo, hi), or all are plain.
func (s *scratch) plainBetween(lo, hi int) bool {
	rest := s.plainAfter(lo)
	return s.literal || len(rest) > 0 && rest[0] < hi
}
