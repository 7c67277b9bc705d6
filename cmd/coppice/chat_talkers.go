package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"time"

	"github.com/coppice-llm/coppice"
	"github.com/coppice-llm/coppice/bench/load"
	"github.com/coppice-llm/coppice/engine/model/gguf"
	"github.com/coppice-llm/coppice/events/eventurl"
	"github.com/coppice-llm/coppice/local"
	"github.com/coppice-llm/coppice/openai"
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
	dir, origin, remove, err := c.modelOrCached(ctx, c.Backend)
	if err != nil {
		return nil, err
	}
	defer remove()
	if _, err := os.Stat(dir); err == nil { // else open says that there is no model
		_, err := local.Template(dir) // fails before the weights are read
		if errors.Is(err, gguf.ErrFormat) {
			return nil, err // a damaged file helps no other command
		}
		if err != nil {
			return nil, fmt.Errorf("%w; coppice generate continues texts without one", err)
		}
	}
	m, err := unlessEnded(ctx, "the model was read", func() (*local.Model, error) { return c.nodeFlags.open(dir, &c.backendFlags, false) })
	if err != nil {
		return nil, err
	}
	return &localTalker{m, coppice.Request{MaxTokens: c.MaxTokens, Sampling: c.over(m.Sampling)}, modelName(dir) + origin}, nil
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

// remoteTalker is an OpenAI-compatible server.
type remoteTalker struct {
	client *load.Client
	url    string // for messages
	fields map[string]any
}

// dial connects to the server and finds its model.
func (c *chatCmd) dial(ctx context.Context) (talker, error) {
	client, err := load.Dial(ctx, load.ClientConfig{URL: c.URL, Endpoint: load.Chat, Model: c.Name, APIKey: c.APIKey})
	if err != nil {
		return nil, err
	}
	fields := c.fields()
	maps.Copy(fields, map[string]any{
		"model": client.Model(), "max_tokens": c.MaxTokens, "stream": true, "stream_options": map[string]any{"include_usage": true},
	})
	return &remoteTalker{client, eventurl.Redact(c.URL), fields}, nil
}

func (t *remoteTalker) greeting() string { return t.client.Model() + " at " + t.url }

func (t *remoteTalker) close() error {
	t.client.Close()
	return nil
}

// answer implements talker by a streamed chat completion.
func (t *remoteTalker) answer(ctx context.Context, messages []chat.Message, say func(string)) (turn, error) {
	var said []openai.Message
	for _, m := range messages {
		said = append(said, openai.Message{Role: m.Role, Content: m.Content})
	}
	fields := maps.Clone(t.fields)
	fields["messages"] = said
	body, err := json.Marshal(fields)
	if err != nil {
		return turn{}, err
	}
	begun := time.Now()
	resp, err := t.client.Post(ctx, body)
	if err != nil {
		if ctx.Err() != nil {
			return turn{}, nil
		}
		return turn{}, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 2000))
		return turn{}, fmt.Errorf("the server answers %s: %s", load.StatusText(resp.StatusCode), load.Said(text))
	}
	took, err := readChat(resp.Body, begun, say)
	if ctx.Err() != nil {
		return took, nil
	}
	return took, err
}

// readChat reads a stream of chunks until its end and passes the text of each chunk to say. The
// times of the result count from begun. A stream with an error, or without [DONE], is an error.
func readChat(body io.Reader, begun time.Time, say func(string)) (turn, error) {
	var took turn
	var chunk openai.Chunk
	events := load.NewEventReader(body, time.Now)
	for {
		event, err := events.Next()
		took.total = time.Since(begun)
		if err == io.EOF {
			return took, errors.New("the server ended the answer without [DONE]")
		}
		if err != nil {
			return took, err
		}
		if string(event.Data) == "[DONE]" {
			return took, nil
		}
		if err := chunk.Read(event.Data); err != nil {
			return took, fmt.Errorf("the server's answer does not follow the OpenAI API: %w", err)
		}
		if fault := chunk.Fault(); fault != nil {
			return took, fmt.Errorf("the server ended the answer: %s", load.Said(fault))
		}
		for _, c := range chunk.Choices {
			if text := c.Delta.ReasoningContent + c.Delta.Content; text != "" {
				if took.output == 0 {
					took.first = time.Since(begun)
				}
				took.output++ // counts chunks as tokens until usage gives the number of tokens
				say(text)
			}
		}
		if u := chunk.Usage; u != nil && u.CompletionTokens > 0 {
			took.prompt, took.cached, took.output = u.PromptTokens, max(u.CachedTokens, 0), u.CompletionTokens
		}
	}
}
