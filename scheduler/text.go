package scheduler

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/grammar"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/scheduler/internal/masks"
	"github.com/coppice-llm/coppice/scheduler/internal/planted"
)

// allowed are the masks of tokens that the samples of a request may draw; nil allows all.
type allowed struct {
	always *masks.Fixed  // AllowedTokens
	early  *masks.Fixed  // within MinTokens: the same without stop tokens
	format *masks.Format // of Format
}

// text holds the constraints on the text of a sample, and how far the text has come.
type text struct {
	checked   bool              // its tokens are checked or masked
	matcher   *grammar.Matcher  // of Format, or nil
	stopState grammar.StopState // of Stops

	promptLogprobs []float32               // of the prompt's tokens so far, if asked for
	promptTop      [][]engine.TokenLogprob // for the same positions, if asked for
}

// checkText checks the constraints of a request on the text of its outputs.
func (c *Config) checkText(info *engine.Info, req *Request) error {
	switch {
	case req.Stops != nil && c.Vocabulary == nil:
		return refuse("Stops", ErrInvalid, "Stops need Config.Vocabulary")
	case req.Format != nil && req.Format.Vocabulary().Size() != info.Vocab:
		return refuse("Format", ErrInvalid, "Format is compiled for %d tokens, the vocabulary has %d", req.Format.Vocabulary().Size(), info.Vocab)
	}
	if len(req.AllowedTokens) == 0 {
		return nil
	}
	if n := len(req.AllowedTokens); n > info.Vocab {
		return refuse("AllowedTokens", ErrInvalid, "%d AllowedTokens, the vocabulary has %d", n, info.Vocab)
	}
	goesOn := req.MinTokens == 0
	for i, t := range req.AllowedTokens {
		if uint64(t) >= uint64(info.Vocab) {
			return refuse("AllowedTokens", ErrInvalid, "AllowedTokens[%d] is %d, the vocabulary has %d", i, t, info.Vocab)
		}
		goesOn = goesOn || !slices.Contains(req.StopTokens, t) // usually the first decides
	}
	if !goesOn {
		return refuse("AllowedTokens", ErrInvalid, "all AllowedTokens are StopTokens, so MinTokens can't be reached")
	}
	return nil
}

// newAllowed makes the masks that a request needs for AllowedTokens and MinTokens. A mask
// has a bit per token of the vocabulary, 1 where the token may be sampled. A request that
// needs no mask gets nil ones.
func newAllowed(info *engine.Info, req *Request) (a allowed) {
	words := info.MaskWords()
	if len(req.AllowedTokens) > 0 {
		a.always = &masks.Fixed{Bits: make([]uint64, words)}
		for _, t := range req.AllowedTokens {
			a.always.Bits[t/64] |= 1 << (t % 64)
		}
	}
	a.early = a.always
	if req.MinTokens == 0 || len(req.StopTokens) == 0 {
		return a
	}
	a.early = &masks.Fixed{Bits: make([]uint64, words)}
	for i := range a.early.Bits {
		if a.early.Bits[i] = math.MaxUint64; a.always != nil {
			a.early.Bits[i] = a.always.Bits[i]
		}
	}
	for _, t := range req.StopTokens {
		if uint64(t) < uint64(info.Vocab) {
			a.early.Bits[t/64] &^= 1 << (t % 64)
		}
	}
	return a
}

// shapeAs gives a new sample its matcher, and sets shaped if any token must be checked or
// masked.
func (q *sequence) shapeAs(req *Request) {
	if req.Format != nil {
		q.text.matcher = req.Format.NewMatcher()
	}
	q.text.checked = q.text.matcher != nil || req.Stops != nil || q.group.allowed.early != nil
}

// awaitsToken reports whether the mask of q's next token, or drafts that are worth it, depend on
// a token that a plan in flight samples. Such a sequence gets no row until that token is known, so
// a request with a format gains nothing from overlap.
func (q *sequence) awaitsToken() bool {
	return q.rows.sampling > 0 && (q.text.matcher != nil || q.rows.drafts != nil && q.rows.drafts.waits)
}

// maskRow sets the mask of r, a row of q in p. Without a format, the mask is that of
// AllowedTokens, or within MinTokens the same without stop tokens. With a format, the mask
// depends on the state of the matcher and on the phase only; if the backend has that mask,
// no bits are computed.
func (p *Plan) maskRow(q *sequence, r *engine.Row) {
	r.Mask = p.maskAt(q, q.text.matcher, int(r.SampleIndex))
}

// maskAt returns the mask of the token of q with that index in the output; matcher, nil without a
// format, is at that token.
func (p *Plan) maskAt(q *sequence, matcher *grammar.Matcher, index int) engine.MaskID {
	a := &q.group.allowed
	base, phase := a.always, uint64(1)
	if index < q.req.MinTokens {
		base, phase = a.early, 0
	}
	if matcher == nil {
		return p.masks.Fixed(&p.Batch, base)
	}
	if phase == 1 && matcher.CanEnd() {
		phase = 2
	}
	at := masks.State{State: matcher.State(), Phase: phase}
	if id, kept := p.masks.Kept(&p.Batch, a.format, at); kept {
		return id
	}
	return p.masks.Keep(&p.Batch, a.format, at, maskOf(matcher, p.masks.Scratch(), base, q.req.StopTokens, phase == 2))
}

// maskDrafts appends to p.draftMasks the masks of the samples after the drafts that s has chosen for q,
// in its row r. It ends early if the backend may not keep one more.
func (p *Plan) maskDrafts(q *sequence, s *drafting, r *engine.Row) {
	if s.walk != nil {
		s.walk.CopyFrom(q.text.matcher)
	}
	for i, t := range s.next {
		if !p.masks.MayDraft() {
			return
		}
		if s.walk != nil && !p.masks.Planted(planted.LateMask) && !s.walk.Accept(t) {
			return
		}
		id := p.maskAt(q, s.walk, int(r.SampleIndex)+1+i)
		p.masks.Drafted(id)
		p.draftMasks = append(p.draftMasks, id)
		if p.masks.Planted(planted.LateMask) && s.walk != nil {
			s.walk.Accept(t)
		}
	}
}

// maskOf computes the mask of the tokens that the matcher accepts. If ends is set, the output
// may end here, and the stop tokens are added; otherwise they are removed. Then it removes
// tokens that base does not allow; a nil base allows all. It writes the bits to into and
// returns into.
func maskOf(matcher *grammar.Matcher, into []uint64, base *masks.Fixed, stopTokens []kv.Token, ends bool) []uint64 {
	matcher.Mask(into)
	for _, t := range stopTokens { // even a stop token with text is no text of the format
		switch {
		case int(t/64) >= len(into):
		case ends:
			into[t/64] |= 1 << (t % 64)
		default:
			into[t/64] &^= 1 << (t % 64)
		}
	}
	if base != nil {
		for i, w := range base.Bits {
			into[i] &= w
		}
	}
	return into
}

// completes passes t, a sampled token that is no stop token, to the matcher and the stop
// strings of q. It reports whether the output ends with t; if so, it sets the reason in e,
// and for a token that the format forbids an error. A stop string that ends within
// MinTokens is passed over, and the search continues after it.
func (q *sequence) completes(cfg *Config, t kv.Token, e *Ending) bool {
	if q.text.matcher != nil {
		if !q.text.matcher.Accept(t) {
			e.Reason = Failed
			e.Err = fmt.Errorf("scheduler: the backend sampled token %d, which the row's mask forbids", t)
			return true
		}
		if q.text.matcher.MustEnd() {
			e.Reason = Stop
			return true
		}
	}
	if q.req.Stops == nil {
		return false
	}
	for text := cfg.Vocabulary.Bytes(t); len(text) > 0; {
		var which, end int
		q.text.stopState, which, end = q.req.Stops.Next(q.text.stopState, text)
		if which < 0 {
			break
		}
		if q.outputTokens() > q.req.MinTokens {
			e.Reason, e.StopString = Stop, q.req.Stops.String(which)
			return true
		}
		text = text[end:]
	}
	return false
}

// blame turns ErrNoToken of a row into an error of the field that forbids all tokens;
// other errors are the backend's and stay as they are.
func (q *sequence) blame(err error) error {
	if !errors.Is(err, engine.ErrNoToken) {
		return err
	}
	field := "Sampling"
	switch {
	case q.text.matcher != nil:
		field = "Format"
	case q.group.allowed.early != nil:
		field = "AllowedTokens"
	}
	return &FieldError{field, fmt.Errorf("%w: after %d tokens of output no token is allowed: %w", ErrInvalid, q.outputTokens(), err)}
}

// wantsPrompt reports whether log-probabilities of the prompt are asked for and not
// complete.
func (q *sequence) wantsPrompt() bool {
	return q.req.PromptLogprobs && q.sample == 0 && len(q.text.promptLogprobs) < q.prompt
}

// addPrompt appends log-probabilities of the tokens of req's prompt. logprobs[0] is that of
// the token at position start, or at position 1 if start is 0. top has the most probable
// tokens for the same positions, or nothing. Positions that t has already, because the
// prompt is computed again after a preemption, are skipped. It panics if logprobs begin
// after the next missing position.
func (t *text) addPrompt(req *Request, start int, logprobs []float32, top [][]engine.TokenLogprob) {
	if t.promptLogprobs == nil {
		if req.PromptTop > 0 {
			t.promptTop = make([][]engine.TokenLogprob, 1, len(req.Prompt))
		}
		t.promptLogprobs = append(make([]float32, 0, len(req.Prompt)), float32(math.NaN()))
	}
	// After a preemption the prompt is computed again from its beginning.
	known := len(t.promptLogprobs) - max(start, 1)
	if known < 0 {
		panic(fmt.Sprintf("scheduler: log-probabilities begin at position %d, want %d", start, len(t.promptLogprobs)))
	}
	for i := known; i < len(logprobs) && len(t.promptLogprobs) < len(req.Prompt); i++ {
		t.promptLogprobs = append(t.promptLogprobs, logprobs[i])
		if req.PromptTop > 0 {
			t.promptTop = append(t.promptTop, top[i])
		}
	}
}
