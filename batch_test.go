package coppice_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice"
	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/local"
	"github.com/coppice-llm/coppice/scheduler"
	"github.com/coppice-llm/coppice/tokenizer/chat"
)

// A batch larger than the node or a tenant's limit admits returns a result for each request, in
// order, and each refusal is in the result of its own request.
func TestBatch(t *testing.T) {
	for _, cfg := range []coppice.Config{
		{},
		{MaxRequests: 3},
		{MaxRequests: 1},
		{Scheduler: scheduler.Config{MaxRunning: 1, MaxQueued: 2}},
		{Scheduler: scheduler.Config{MaxRunning: 1, Tenant: scheduler.TenantConfig{MaxQueued: 1}}},
	} {
		cfg.Backend = &counter{last: map[engine.Slot]kv.Token{}}
		node, err := coppice.Open(cfg)
		if err != nil {
			t.Fatal(err)
		}
		reqs := make([]coppice.Request, 40)
		for i := range reqs {
			reqs[i] = coppice.Request{Tokens: []kv.Token{kv.Token(10 * i)}, MaxTokens: 3, Tenant: "a"}
		}
		reqs[7].MaxTokens, reqs[9].Tokens, reqs[11].Samples = -1, nil, 1<<40
		results, err := node.Batch(t.Context(), reqs)
		for i, r := range results {
			bad := i == 7 || i == 9 || i == 11
			if (r.Err != nil) != bad || !bad && (len(r.Tokens) != 4 || r.Tokens[3] != kv.Token(10*i+3)) {
				t.Errorf("%+v: result %d is %+v", cfg.Scheduler, i, r)
			}
		}
		if !errors.Is(err, coppice.ErrInvalid) || !errors.Is(err, coppice.ErrEmptyPrompt) || strings.Count(err.Error(), "\n") != 2 || !strings.Contains(err.Error(), "request 7: coppice: ") {
			t.Errorf("%v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := node.Batch(ctx, reqs); !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled: %v", err)
		}
		if results, err := node.Batch(ctx, nil); len(results) != 0 || err != nil {
			t.Errorf("nothing asked: %v, %v", results, err)
		}
		if err := node.Close(); err != nil {
			t.Error(err)
		}
		if _, err := node.Batch(t.Context(), reqs[:2]); !errors.Is(err, coppice.ErrClosed) {
			t.Errorf("closed: %v", err)
		}
	}
}

// When a time limit ends a request, Text returns the output until then, with the error, and
// each sample's output.
func TestTextFailsAndSamples(t *testing.T) {
	node := open(t, coppice.Config{})
	r, err := node.Text(t.Context(), coppice.Request{Prompt: "Light", MaxTokens: 5, IgnoreEOS: true, Samples: 3, Sampling: engine.SamplingParams{Temperature: 1, Seed: 1, Logprobs: true}})
	if err != nil || len(r.More) != 2 || r.OutputTokens != 5 || r.More[1].OutputTokens != 5 || len(r.More[0].Logprobs) != 5 {
		t.Errorf("%+v, %v", r, err)
	}
	if r, err = node.Text(t.Context(), coppice.Request{Prompt: "Light", MaxTokens: -1}); !errors.Is(err, coppice.ErrInvalid) || !errors.Is(r.Err, coppice.ErrInvalid) {
		t.Errorf("%+v, %v", r, err)
	}
	if r, err = node.Text(t.Context(), coppice.Request{Prompt: "Light", MaxTokens: 3000, IgnoreEOS: true, Timeout: 1}); !errors.Is(err, coppice.ErrDeadline) || r.Reason != coppice.Abort {
		t.Errorf("%+v, %v", r, err)
	}
	if _, err := node.Chat(t.Context(), []chat.Message{{Role: "user", Content: "Light?"}}, coppice.ChatOptions{}); !errors.Is(err, coppice.ErrInvalid) {
		t.Errorf("a chat without a template: %v", err)
	}
}

// Control tokens in a message are refused, or encoded as text, as the options select.
func TestChatControls(t *testing.T) {
	m, err := local.Open(nano, local.Options{KVTokens: 4096})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	control := m.Tokenizer().ControlTokens()[0]
	messages := []chat.Message{{Role: "user", Content: "a " + control + " b"}}
	if _, err := m.Chat(t.Context(), messages, coppice.ChatOptions{Controls: chat.Refuse}); !errors.Is(err, chat.ErrControl) || !strings.HasPrefix(err.Error(), "coppice: ") {
		t.Errorf("%v", err)
	}
	req, err := m.ChatRequest(messages, coppice.ChatOptions{Controls: chat.Text, Request: coppice.Request{MaxTokens: 2}})
	if err != nil || len(req.Plain) != 1 || !req.Rendered || req.MaxTokens != 2 {
		t.Errorf("%+v, %v", req, err)
	}
}
