package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/coppice-llm/coppice"
	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/local"
	"github.com/coppice-llm/coppice/tokenizer/chat"
)

// localTalker is a model in this process.
type localTalker struct {
	*local.Model
	request coppice.Request
	name    string
}

// openLocal opens the model.
func (c *chatCmd) openLocal(ctx context.Context) (talker, error) {
	dir, origin, remove, err := c.modelOrCached(ctx)
	if err != nil {
		return nil, err
	}
	defer remove()
	if _, err := os.Stat(dir); err == nil { // else open says that there is no model
		if _, err := local.Template(dir); err != nil { // fails before the weights are read
			return nil, fmt.Errorf("%w; coppice generate continues texts without one", err)
		}
	}
	m, err := unlessEnded(ctx, "the model was read", func() (*local.Model, error) { return c.nodeFlags.open(dir, &c.backendFlags, false) })
	if err != nil {
		return nil, err
	}
	return &localTalker{m, coppice.Request{MaxTokens: c.MaxTokens, Sampling: engine.SamplingParams{Temperature: c.Temperature, TopP: c.TopP, Seed: c.Seed}}, modelName(dir) + origin}, nil
}

func (t *localTalker) greeting() string { return t.name }

func (t *localTalker) close() error { return t.Close() }

// answer implements talker with the model's chat template.
func (t *localTalker) answer(ctx context.Context, messages []chat.Message, say func(string)) (turn, error) {
	req, err := t.ChatRequest(messages, coppice.ChatOptions{Request: t.request})
	if err != nil {
		return turn{}, err
	}
	var took turn
	for piece, err := range t.Generate(ctx, req) {
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
