package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/coppice-llm/coppice"
	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/tokenizer/chat"
)

// localTalker is a model in this process.
type localTalker struct {
	node     *coppice.Node
	template *chat.Template
	request  coppice.Request
	says     string
}

// openLocal opens the model.
func (c *chatCmd) openLocal(ctx context.Context) (talker, error) {
	dir, origin, remove, err := c.modelOrCached(ctx)
	if err != nil {
		return nil, err
	}
	defer remove()
	template, err := openTemplate(dir)
	if err != nil {
		return nil, fmt.Errorf("%w; coppice generate continues texts without one", err)
	}
	node, err := unlessEnded(ctx, "the model was read", func() (*coppice.Node, error) { return c.nodeFlags.open(dir, &c.backendFlags, false) })
	if err != nil {
		return nil, err
	}
	t := &localTalker{node: node, template: template, says: modelName(dir) + origin, request: coppice.Request{Rendered: true, MaxTokens: c.MaxTokens,
		Sampling: engine.SamplingParams{Temperature: c.Temperature, TopP: c.TopP, Seed: c.Seed}}}
	return t, nil
}

func (t *localTalker) greeting() string { return t.says }

func (t *localTalker) close() error { return t.node.Close() }

func (t *localTalker) answer(ctx context.Context, messages []chat.Message, say func(string)) (turn, error) {
	req := t.request
	var err error
	if req.Prompt, err = t.template.Render(messages, chat.Options{AddGenerationPrompt: true}); err != nil {
		return turn{}, err
	}
	var took turn
	for piece, err := range t.node.Generate(ctx, req) {
		if piece.Text != "" {
			say(piece.Text)
		}
		if e := piece.Ending; e != nil {
			took = turn{e.PromptTokens, e.CachedTokens, e.OutputTokens, e.FirstToken, e.Total}
		}
		if err != nil && !(errors.Is(err, context.Canceled) && ctx.Err() != nil) {
			return took, err
		}
	}
	return took, nil
}
