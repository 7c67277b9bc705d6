package coppice

import (
	"context"
	"fmt"

	"github.com/coppice-llm/coppice/tokenizer/chat"
)

// ChatOptions configures the continuation of a conversation.
type ChatOptions struct {
	// Request has the limits, sampling and all other fields; Chat sets Prompt, Plain and
	// Rendered.
	Request Request
	// Template has the tools and the variables of the chat template; Chat sets
	// AddGenerationPrompt.
	Template chat.Options
	// Controls selects how control tokens in messages, such as <|im_end|>, are treated. Default:
	// chat.Allow, they take effect.
	Controls chat.ControlMode
}

// Chat answers a conversation and waits for the end of the answer. Its errors are those of Text
// and ChatRequest.
func (n *Node) Chat(ctx context.Context, messages []chat.Message, opts ChatOptions) (Result, error) {
	req, err := n.ChatRequest(messages, opts)
	if err != nil {
		return Result{}, err
	}
	return n.Text(ctx, req)
}

// ChatRequest renders a conversation with Config.Template and returns a request for Generate,
// Stream or Batch. Without a template it fails with ErrInvalid.
func (n *Node) ChatRequest(messages []chat.Message, opts ChatOptions) (Request, error) {
	if n.template == nil {
		return Request{}, fmt.Errorf("%w: the node has no chat template, set Config.Template", ErrInvalid)
	}
	opts.Template.AddGenerationPrompt = true
	rendered, err := n.template.RenderAs(messages, opts.Template, n.controls, opts.Controls)
	if err != nil {
		return Request{}, public(err)
	}
	req := opts.Request
	req.Prompt, req.Plain, req.Rendered = rendered.Text, rendered.Plain, true
	return req, nil
}
