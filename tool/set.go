package tool

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/coppice-llm/coppice"
	"github.com/coppice-llm/coppice/grammar/jsonschema"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/tokenizer"
	"github.com/coppice-llm/coppice/tokenizer/chat"
)

// Set has the tools of sessions: coppice.SessionOptions.Tools.
type Set []Tool

// Calling implements coppice.Tools. It fails if Validate of a tool does.
func (s Set) Calling(t *chat.Template, tok *tokenizer.Tokenizer, mode chat.ToolsPrompt) (coppice.Calling, error) {
	if len(s) == 0 {
		return nil, nil
	}
	for i := range s {
		if err := s[i].Validate(); err != nil {
			return nil, err
		}
	}
	return &bound{tools: slices.Clone(s), calling: CallingOf(t, tok, nil, mode)}, nil
}

// bound is a Set for a model.
type bound struct {
	tools   []Tool
	calling Calling
}

func (b *bound) Declared() []json.RawMessage { return Declare(b.tools) }

func (b *bound) Tokens() []kv.Token { return b.calling.Tokens }

func (b *bound) Opened(rendered string) bool { return b.calling.Opened(rendered) }

func (b *bound) Format(must, opened bool) coppice.Format {
	return coppice.Format{Language: jsonschema.ToolCalls, Text: b.calling.Format(b.tools, must, opened)}
}

func (b *bound) Read(output string, held, opened bool, first int) (string, []chat.ToolCall) {
	reply := b.calling.Read(output, b.tools, Reading{Held: held, Opened: opened, First: first})
	return reply.Text, reply.Calls
}

func (b *bound) Call(ctx context.Context, c *chat.ToolCall) chat.Message {
	m := chat.Message{Role: "tool", Name: c.Name, ToolCallID: c.ID}
	i := slices.IndexFunc(b.tools, func(t Tool) bool { return t.Name == c.Name })
	if i < 0 {
		m.Content = fmt.Sprintf("error: there is no tool %q", c.Name)
		return m
	}
	arguments := c.Arguments
	if len(arguments) == 0 {
		arguments = json.RawMessage("{}")
	}
	var err error
	if m.Content, err = b.tools[i].Do(ctx, arguments); err != nil {
		m.Content = "error: " + err.Error()
	}
	return m
}
