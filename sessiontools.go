package coppice

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/tokenizer"
	"github.com/coppice-llm/coppice/tokenizer/chat"
)

// Tools are functions that a model may call: a Set of package tool. They stand behind an interface so that a program without tools
// links neither the schemas of Go types nor the parser of calls.
type Tools interface {
	// Calling returns how a model with this chat template and this tokenizer calls the tools, nil if there are none. It fails if one of
	// them can't be used.
	Calling(t *chat.Template, tok *tokenizer.Tokenizer, mode chat.ToolsPrompt) (Calling, error)
}

// Calling is how a model calls the tools of sessions. Its methods may be called from any goroutine; the caller does not change the
// slices that they return.
type Calling interface {
	// Declared returns the tools as a chat template takes them: chat.Options.Tools.
	Declared() []json.RawMessage
	// Tokens lists the control tokens around calls, whose text Read needs: Request.SpecialText.
	Tokens() []kv.Token
	// Opened reports whether a rendered conversation ends with the opening tag of the model's reasoning.
	Opened(rendered string) bool
	// Format holds the calls of an output to their form, from the moment that a call begins; with must the output consists of
	// calls. opened has the result of Opened.
	Format(must, opened bool) Format
	// Read separates an output into its text and its calls. held says that Format held it, opened has the result
	// of Opened, and first is the number of the first call, for its id.
	Read(output string, held, opened bool, first int) (text string, calls []chat.ToolCall)
	// Call runs a call and returns the message with its result, or with its error.
	Call(ctx context.Context, c *chat.ToolCall) chat.Message
}

// setTools sets how the model of n calls the tools of the options.
func (s *sessionShared) setTools(n *Node) (err error) {
	o := &s.opts.Chat.Template
	s.calling, err = s.opts.Tools.Calling(n.template, n.Tokenizer(), o.ToolsPrompt)
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w", ErrInvalid, public(err))
	case s.calling == nil:
		return nil
	case n.template == nil:
		return fmt.Errorf("%w: tools need a chat template, set Config.Template", ErrInvalid)
	}
	if len(o.Tools) == 0 {
		o.Tools = s.calling.Declared()
	}
	return nil
}

// Run adds messages and lets the model answer and call SessionOptions.Tools until it answers without a call. Result is
// the last turn, with the text of its answer alone. Calls run one after the other, on the goroutine of Run; the
// model reads the error of a tool that fails. Between turns, and so within a tool, the session can be forked.
// If a turn fails, the session stays as it was before that turn, with the results of the calls before it: Run without messages
// goes on there. Errors: those of Chat, ErrSessionTurns, and the cause of the end of ctx.
func (s *Session) Run(ctx context.Context, messages ...chat.Message) (Result, error) {
	for turn := range s.shared.opts.MaxTurns {
		t := &turnOf{s: s, calls: s.shared.calling != nil, must: s.shared.opts.MustCall && turn == 0}
		r, err := collect(t.run(ctx, s.Request(), messages))
		if err != nil || !t.calls {
			return r, err
		}
		text, calls := s.read(&r, t.opened)
		if len(calls) == 0 || r.Reason == Length { // the last call may be cut
			r.Text = text
			return r, nil
		}
		results, names := make([]chat.Message, len(calls)), make([]string, len(calls))
		for i := range calls {
			names[i] = calls[i].Name
		}
		_ = s.node.AwaitTools(ctx, s.ref(), names...) // fails if the node has forgotten the session
		for i := range calls {
			if ctx.Err() != nil {
				return r, context.Cause(ctx)
			}
			results[i] = s.shared.calling.Call(ctx, &calls[i])
		}
		if err := s.Append(results...); err != nil {
			return r, err
		}
		messages = nil
	}
	return Result{}, ErrSessionTurns
}

// read returns the text and the calls of an output, and counts its calls.
func (s *Session) read(r *Result, opened bool) (text string, calls []chat.ToolCall) {
	s.mu.Lock()
	defer s.mu.Unlock()
	own := &s.shared.opts.Chat.Request
	held := own.Format == (Format{}) && len(own.AllowedTokens) == 0
	text, calls = s.shared.calling.Read(r.Text, held, opened, s.calls+1)
	s.calls += len(calls)
	return text, calls
}
