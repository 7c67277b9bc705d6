package coppice

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"

	"github.com/coppice-llm/coppice/tokenizer/chat"
)

// turnOf is a turn of a session, from begin to end.
type turnOf struct {
	s        *Session
	base     *history // the session's tokens before the turn
	input    []segment
	lead     []chat.Message
	stopped  bool // the last token of base is a stop token
	calls    bool // tools may be called
	must     bool // and one must be
	opened   bool // the prompt ends with the opening tag of the reasoning
	added    int  // tokens of the prompt that are not in base
	reserved int  // tokens taken from the purse
	output   int  // tokens that came
	over     bool
}

// Chat adds messages and answers, and waits for the end of the answer: a turn with SessionOptions.Chat. Without messages
// it answers those that were appended. If it fails, the messages are not part of the session. Errors:
// those of Node.Chat, ErrSessionBusy, ErrSessionReleased, ErrSessionBudget.
func (s *Session) Chat(ctx context.Context, messages ...chat.Message) (Result, error) {
	return collect((&turnOf{s: s, calls: s.shared.calling != nil}).run(ctx, s.Request(), messages))
}

// Text is Generate, and waits for the end of the turn.
func (s *Session) Text(ctx context.Context, req Request) (Result, error) {
	return collect(s.Generate(ctx, req))
}

// Generate returns an iterator that runs a turn and yields its pieces as they come, as Node.Generate does. The prompt is the
// session, what was appended to it, req.Tokens and req.Prompt. Tenant, Namespace, PublicTokens, Class and Priority are the session's;
// Request returns the session's own limits and sampling. A turn has one sample and no media.
// Errors: those of Node.Generate, ErrSessionBusy, ErrSessionReleased, ErrSessionBudget.
func (s *Session) Generate(ctx context.Context, req Request) iter.Seq2[Piece, error] {
	return (&turnOf{s: s}).run(ctx, req, nil)
}

// run runs the turn. messages come after what was appended, and are dropped with req's own input if the turn fails.
func (t *turnOf) run(ctx context.Context, req Request, messages []chat.Message) iter.Seq2[Piece, error] {
	return func(yield func(Piece, error) bool) {
		ctx, err := t.begin(ctx, messages)
		if err != nil {
			yield(Piece{}, err)
			return
		}
		defer t.end(nil)
		if err := t.prepare(ctx, &req); err != nil {
			yield(Piece{}, err)
			return
		}
		for piece, err := range t.s.node.Generate(ctx, req) {
			t.output += len(piece.Tokens)
			if piece.Ending != nil {
				t.pin(ctx)
				t.end(piece.Ending) // before the caller sees it, and may begin the next turn
			}
			if !yield(piece, err) {
				return
			}
		}
	}
}

// begin makes the session busy. The context that it returns ends with a Release too.
func (t *turnOf) begin(ctx context.Context, messages []chat.Message) (context.Context, error) {
	s := t.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.available(); err != nil {
		return ctx, err
	}
	*t = turnOf{s: s, calls: t.calls, must: t.must, base: s.past, lead: s.lead, stopped: s.stopped}
	t.input = appendSegment(s.pending, segment{messages: slices.Clone(messages)})
	s.state = busy
	ctx, s.stop = context.WithCancelCause(ctx)
	return ctx, nil
}

// prepare completes the request of the turn.
func (t *turnOf) prepare(ctx context.Context, req *Request) error {
	switch {
	case req.Samples > 1:
		return &FieldError{Field: "Samples", Err: fmt.Errorf("%w: a turn of a session has one sample, fork the session for others", ErrInvalid)}
	case len(req.Media) > 0:
		return &FieldError{Field: "Media", Err: fmt.Errorf("%w: sessions take no media", ErrInvalid)}
	}
	if err := t.prompt(ctx, req); err != nil {
		return err
	}
	own := &t.s.shared.opts.Chat.Request
	req.Tenant, req.Namespace, req.PublicTokens, req.Class, req.Priority = own.Tenant, own.Namespace, own.PublicTokens, own.Class, own.Priority
	req.Session = t.s.name
	if c := t.s.shared.calling; t.calls {
		req.SpecialText = slices.Concat(req.SpecialText, c.Tokens())
		if req.Format == (Format{}) && len(req.AllowedTokens) == 0 {
			req.Format = c.Format(t.must, t.opened)
		}
	}
	if req.MaxTokens < 0 { // the scheduler refuses it
		return nil
	}
	output, err := t.s.shared.purse.take(t.added, req.MaxTokens)
	if err == nil && output > 0 {
		req.MaxTokens, t.reserved = output, t.added+output
	}
	return err
}

// prompt sets the tokens of the request: those of the session, of the input, and of the request itself.
func (t *turnOf) prompt(ctx context.Context, req *Request) error {
	n := t.s.node
	if last := len(t.input) - 1; t.stopped && last >= 0 && t.input[0].messages != nil {
		t.base = t.base.prefix(t.base.Len() - 1) // the template writes the end of the answer
	}
	tokens := t.base.list(1024)
	for i, x := range t.input {
		if x.messages == nil {
			tokens = append(tokens, x.tokens...)
			continue
		}
		text, plain, err := t.render(x.messages, len(tokens) > 0, i == len(t.input)-1)
		if err != nil {
			return err
		}
		c := t.s.shared.calling
		t.opened = i == len(t.input)-1 && c != nil && c.Opened(text)
		encoded, err := n.Tokenize(ctx, Text{Tenant: t.tenant(), Text: text, Rendered: true, Plain: plain, Bounded: true})
		if err != nil {
			return err
		}
		tokens = append(tokens, encoded...)
	}
	tokens = append(tokens, req.Tokens...)
	if req.Prompt != "" {
		encoded, err := n.Tokenize(ctx, Text{Tenant: t.tenant(), Text: req.Prompt, Rendered: req.Rendered || len(tokens) > 0, Plain: req.Plain, Bounded: true})
		if err != nil {
			return err
		}
		tokens = append(tokens, encoded...)
	}
	req.Tokens, req.Prompt, req.Plain = tokens, "", nil
	t.added = len(tokens) - t.base.Len()
	return nil
}

func (t *turnOf) tenant() string { return t.s.shared.opts.Chat.Request.Tenant }

// answerMark stands for the last answer where messages are rendered that follow it.
const answerMark = "coppice-answer-5b2e91d07c"

// render renders messages: the first ones, or those that follow an answer. For these it renders a short conversation
// with the same system message, in which a mark stands for the answer, and returns what follows the mark. So the
// tokens of the conversation stay as the model read and wrote them, and a turn costs what its new
// messages cost. last adds the beginning of the model's turn.
func (t *turnOf) render(messages []chat.Message, follows, last bool) (text string, plain []int, err error) {
	n, opts := t.s.node, &t.s.shared.opts.Chat
	if n.template == nil {
		return "", nil, fmt.Errorf("%w: the node has no chat template, set Config.Template", ErrInvalid)
	}
	all := messages
	if follows {
		all = slices.Concat(t.lead, []chat.Message{{Role: "user", Content: "."}, {Role: "assistant", Content: answerMark}}, messages)
	} else {
		for t.lead = nil; len(t.lead) < len(all) && (all[len(t.lead)].Role == "system" || all[len(t.lead)].Role == "developer"); {
			t.lead = all[:len(t.lead)+1]
		}
	}
	o := opts.Template
	o.AddGenerationPrompt = last
	rendered, err := n.template.RenderAs(all, o, n.controls, opts.Controls)
	if err != nil {
		return "", nil, public(err)
	}
	if !follows {
		return rendered.Text, rendered.Plain, nil
	}
	before, text, found := strings.Cut(rendered.Text, answerMark)
	if !found || strings.Contains(text, answerMark) {
		return "", nil, fmt.Errorf("%w: the chat template does not show where messages follow an answer: append tokens instead", ErrInvalid)
	}
	from := len(before) + len(answerMark)
	for _, at := range rendered.Plain {
		if at >= from {
			plain = append(plain, at-from)
		}
	}
	return text, plain, nil
}

// end ends the turn, once. With the ending of a turn that became part of the conversation, the session continues
// after it.
func (t *turnOf) end(e *Ending) {
	if t.over {
		return
	}
	t.over = true
	s, used, kept := t.s, t.output, e != nil && (e.Reason == Stop || e.Reason == Length)
	if kept {
		used += t.added
	}
	if t.reserved > 0 {
		s.shared.purse.settle(t.reserved, used)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stop(nil)
	s.stop = nil
	if s.state == released {
		return
	}
	s.state, s.ran = idle, true
	if kept {
		s.past, s.pending, s.lead, s.stopped = t.base.add(e.Tokens[t.base.Len():]), nil, t.lead, e.StopToken
	}
}

// pin pins what the first turn left, if that is wanted and possible. The pin moves on with the turns after it.
func (t *turnOf) pin(ctx context.Context) {
	s := t.s
	if s.shared.opts.Pin && !s.pinned {
		_, err := s.node.PinSession(ctx, s.ref(), 0)
		s.pinned = err == nil
	}
}

// purse holds the rest of a budget of tokens.
type purse struct {
	mu      sync.Mutex
	limited bool
	left    int
}

func (p *purse) rest() (tokens int, limited bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.left, p.limited
}

// take reserves the input tokens of a turn and at most this many output tokens; with most 0 all that are left. It returns the number of output tokens, 0 without a limit.
func (p *purse) take(input, most int) (output int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.limited {
		return 0, nil
	}
	if output = p.left - input; output < 1 {
		return 0, fmt.Errorf("%w: the turn has %d tokens of input, and %d are left", ErrSessionBudget, input, p.left)
	}
	if most > 0 {
		output = min(output, most)
	}
	p.left -= input + output
	return output, nil
}

// settle gives back what a turn has reserved and not used.
func (p *purse) settle(reserved, used int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left += reserved - used
}
