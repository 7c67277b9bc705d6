package actors

import (
	"errors"
	"fmt"

	"github.com/coppice-llm/coppice/internal/budget"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/scheduler"
	"github.com/coppice-llm/coppice/tokenizer"
)

// tokenizerActor turns prompts into tokens. Its only state is a cache of pieces, which may be
// lost: a panic costs the request being encoded and the cache, and the restarted worker
// continues with the next request. The texts encoded before are common to all workers.
type tokenizerActor struct {
	sys     *System
	tok     *tokenizer.Tokenizer
	encoder *tokenizer.Encoder // made for the first text
}

func (a *tokenizerActor) receive(self *process, message any) {
	switch m := message.(type) {
	case *encode:
		a.encode(m)
		a.sys.turns.tell(&encoded{m.worker, m.tenant})
	case *shutdown:
		self.quit()
	default:
		unknown(m)
	}
}

// encode encodes the text of m and submits the request, or sends the tokens to m.reply. It
// skips texts that are no longer wanted, since encoding a long text takes a while.
func (a *tokenizerActor) encode(m *encode) {
	select {
	case <-a.sys.ending: // which ends the request
		return
	default:
	}
	if a.encoder == nil {
		a.encoder = a.tok.NewEncoder()
	}
	if m.stream == nil {
		if !m.gone.Load() {
			tokens, err := a.run(nil, &m.text, m.text.options())
			m.reply <- encodedText{tokens, err}
		}
		return
	}
	if gone := m.stream.gone.Load(); gone != nil {
		a.sys.requests.dismiss(m.stream, scheduler.Ending{Reason: scheduler.Abort, Err: *gone})
		return
	}
	// m.req.Tokens belongs to the caller and must not be written to.
	tokens := append([]kv.Token(nil), m.req.Tokens...)
	text := Text{Tenant: m.tenant, Namespace: m.req.Namespace, Text: m.req.Prompt, Rendered: m.req.Rendered || len(tokens) > 0, Plain: m.req.Plain, Bounded: true}
	tokens, err := a.run(tokens, &text, text.options())
	if err != nil {
		a.sys.requests.dismiss(m.stream, scheduler.Ending{Reason: scheduler.Failed, Err: err})
		return
	}
	a.sys.submit(m.stream, m.req, tokens, a.predicted(m.req.Prediction))
}

// predicted returns the tokens of a text that an output is expected to repeat, nil for a text that no
// output can be: only the speed of the output depends on them. It is encoded without special
// tokens, as they have no text in an output.
func (a *tokenizerActor) predicted(text string) []kv.Token {
	if text == "" {
		return nil
	}
	tokens, err := a.run(nil, &Text{Text: text, Bounded: true}, tokenizer.Options{Literal: true})
	if err != nil {
		return nil
	}
	return tokens
}

// run appends the tokens of the text t, encoded by o, to dst. Encoding a bounded text stops at one token
// more than a prompt may have, and run returns an error.
func (a *tokenizerActor) run(dst []kv.Token, t *Text, o tokenizer.Options) ([]kv.Token, error) {
	most, tooMany := a.sys.longestPrompt()
	if t.Bounded {
		if o.MaxTokens = most - len(dst); o.MaxTokens < 1 {
			return nil, tooMany
		}
	}
	if longest := a.sys.longestText(most); t.Bounded && longest > 0 && len(t.Text) > longest {
		return nil, tooMany
	}
	dst, err := a.encodeWith(dst, t, o)
	switch {
	case errors.Is(err, tokenizer.ErrTooLong):
		return nil, tooMany
	case errors.Is(err, budget.ErrFull):
		return nil, err
	case err != nil:
		return nil, &scheduler.FieldError{Field: "Prompt", Err: fmt.Errorf("%w: %w", scheduler.ErrInvalid, err)}
	}
	return dst, nil
}

// ownScratch is the size, in bytes, of the buffers that a worker keeps for merging pieces: enough for
// the pieces of usual texts. Larger ones are charged to the memory of open requests while they exist.
const ownScratch = 8 << 20

// encodeWith is Encoder.EncodeWith, which reuses texts encoded before. A text with a piece too long for ownScratch is encoded again, after
// memory for its buffers is reserved; without room for them encodeWith returns budget.ErrFull.
func (a *tokenizerActor) encodeWith(dst []kv.Token, t *Text, o tokenizer.Options) ([]kv.Token, error) {
	o.Scratch = ownScratch
	n, text, owner := len(dst), t.Text, t.owner()
	dst, err := a.sys.texts.Encode(dst, a.encoder, owner, text, o)
	for growth := 1; errors.Is(err, tokenizer.ErrScratch) && growth <= normalGrowth; growth += normalGrowth - 1 {
		var large budget.Account
		o.Scratch = growth * tokenizer.PieceBytes * len(text)
		if err := large.Extend(a.sys.cfg.Memory, o.Scratch); errors.Is(err, budget.ErrNever) {
			return dst, fmt.Errorf("%w: a text of %d bytes without a place to cut needs more memory than open requests may have", tokenizer.ErrScratch, len(text))
		} else if err != nil {
			return dst, err
		}
		dst, err = a.sys.texts.Encode(dst[:n], a.encoder, owner, text, o)
		large.Close()
	}
	return dst, err
}

// normalGrowth is how many times longer a text is at most after normalization: a space of one byte
// becomes a character of three.
const normalGrowth = 3

// PromptBytes returns the most bytes that the text of a prompt can have, and the error for a longer one,
// which has more tokens than can be served. It returns 0 if there is no such number.
func (s *System) PromptBytes() (most int, tooLong error) {
	tokens, tooMany := s.longestPrompt()
	return s.longestText(tokens), tooMany
}

// longestText returns the most bytes that the text of a prompt with that many tokens can have; 0 if
// there is no such number.
func (s *System) longestText(tokens int) int {
	if s.cfg.Tokenizer == nil {
		return 0
	}
	return tokens * s.cfg.Tokenizer.TokenBytes()
}

// longestPrompt returns the largest number of prompt tokens that can be served, and the error
// for a longer prompt. That error has no exact length, since the encoder stops at the limit.
func (s *System) longestPrompt() (most int, tooMany error) {
	info := s.cfg.Backend.Info()
	most = info.MaxPositions
	err := fmt.Errorf("%w: more than %d tokens, the model has %d positions", scheduler.ErrPromptTooLong, most, most)
	if pool := info.NumPages*info.PageTokens - s.cfg.Scheduler.PinnedTokens; pool < most {
		most = pool
		err = fmt.Errorf("%w: more than %d prompt tokens, the pool holds %d", scheduler.ErrTooLarge, most, most)
	}
	return most, &scheduler.FieldError{Field: "Prompt", Err: err}
}

// drop is called when the worker panicked on message. The request that the worker was
// encoding fails with err, or the Tokenize call returns err.
func (a *tokenizerActor) drop(message any, err error) {
	m, ok := message.(*encode)
	switch {
	case !ok:
		return
	case m.stream != nil:
		a.sys.requests.dismiss(m.stream, scheduler.Ending{Reason: scheduler.Failed, Err: err})
	default:
		m.reply <- encodedText{err: err}
	}
	a.sys.turns.tell(&encoded{m.worker, m.tenant})
}
