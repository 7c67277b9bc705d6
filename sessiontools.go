package coppice

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/coppice-llm/coppice/tokenizer/chat"
	"github.com/coppice-llm/coppice/tool"
)

// Run adds messages and lets the model answer and call SessionOptions.Tools until it answers without a call. Result is
// the last turn, with the text of its answer alone. Calls run one after the other, on the goroutine of Run; the
// model reads the error of a tool that fails. Between turns, and so within a tool, the session can be forked.
// If a turn fails, the session stays as it was before that turn, with the results of the calls before it: Run without messages
// goes on there. Errors: those of Chat, ErrSessionTurns, and the cause of the end of ctx.
func (s *Session) Run(ctx context.Context, messages ...chat.Message) (Result, error) {
	for turn := range s.shared.opts.MaxTurns {
		t := &turnOf{s: s, calls: len(s.shared.opts.Tools) > 0, must: s.shared.opts.MustCall && turn == 0}
		r, err := collect(t.run(ctx, s.Request(), messages))
		if err != nil || !t.calls {
			return r, err
		}
		reply := s.read(&r, t.opened)
		if len(reply.Calls) == 0 || r.Reason == Length { // the last call may be cut
			r.Text = reply.Text
			return r, nil
		}
		results := make([]chat.Message, len(reply.Calls))
		for i, c := range reply.Calls {
			if ctx.Err() != nil {
				return r, context.Cause(ctx)
			}
			results[i] = s.shared.call(ctx, &c)
		}
		if err := s.Append(results...); err != nil {
			return r, err
		}
		messages = nil
	}
	return Result{}, ErrSessionTurns
}

// read returns what an output says, and counts its calls.
func (s *Session) read(r *Result, opened bool) tool.Reply {
	s.mu.Lock()
	defer s.mu.Unlock()
	own := &s.shared.opts.Chat.Request
	held := own.Format == (Format{}) && len(own.AllowedTokens) == 0
	reply := s.shared.calling.Read(r.Text, s.shared.opts.Tools, tool.Reading{Held: held, Opened: opened, First: s.calls + 1})
	s.calls += len(reply.Calls)
	return reply
}

// call runs a call and returns the message with its result.
func (s *sessionShared) call(ctx context.Context, c *chat.ToolCall) chat.Message {
	m := chat.Message{Role: "tool", Name: c.Name, ToolCallID: c.ID}
	i := slices.IndexFunc(s.opts.Tools, func(t tool.Tool) bool { return t.Name == c.Name })
	if i < 0 {
		m.Content = fmt.Sprintf("error: there is no tool %q", c.Name)
		return m
	}
	arguments := c.Arguments
	if len(arguments) == 0 {
		arguments = json.RawMessage("{}")
	}
	var err error
	if m.Content, err = s.opts.Tools[i].Do(ctx, arguments); err != nil {
		m.Content = "error: " + err.Error()
	}
	return m
}
