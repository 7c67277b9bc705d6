package e2e

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/openai/openai-go/v3"
)

// Parts of helpdesk conversations, for a load whose prefixes are shared as in a real one.
var (
	systems = []string{
		"You are the helpdesk of a small railway museum. Answer in one or two sentences, and say which hall an exhibit stands in. Never invent opening times: they are ten to five, and Mondays are closed.",
		"You are a gardener's assistant. You know hedges, coppices and orchards. Say what to cut, when, and how far down. If a plant should not be cut at all, say so first.",
		"Translate what the user writes into plain English. Keep names as they are. Give the translation alone, without a word of explanation.",
	}
	questions = []string{
		"When do you open on Sundays?", "Is there a café, and does it have soup?", "How do I cut a hazel that was left alone for ten years?",
		"What would happen if I cut it in May?", "Which of them can be seen from the gallery?", "And the one beside it?",
		"How long does it take to grow back?", "Could you say that again in other words?", "Who built the first one?", "Is it still in use?",
	}
)

// load runs some conversations at a time until the test ends. The prompt of each turn begins with all
// earlier turns.
func (p *process) load(conversations int) {
	ctx, cancel := context.WithCancel(p.t.Context())
	var all sync.WaitGroup
	p.t.Cleanup(all.Wait)
	p.t.Cleanup(cancel)
	for i := range conversations {
		all.Go(func() {
			for n := i; ctx.Err() == nil; n += conversations {
				p.converse(ctx, n)
			}
		})
	}
}

// converse runs one conversation of four turns.
func (p *process) converse(ctx context.Context, n int) {
	messages := []openai.ChatCompletionMessageParamUnion{openai.SystemMessage(systems[n%len(systems)])}
	for turn := range 4 {
		q := questions[(n/len(systems)+turn*(1+n%3))%len(questions)]
		messages = append(messages, openai.UserMessage(q))
		req := talk(int64(24+8*(n%5)), messages...)
		req.Model = p.model
		req.StreamOptions.IncludeUsage = openai.Bool(true)
		s := p.client.Chat.Completions.NewStreaming(ctx, req)
		for s.Next() {
		}
		if err := s.Err(); err != nil {
			if ctx.Err() == nil {
				p.t.Errorf("conversation %d, turn %d: %v", n, turn, detail(err))
			}
			return
		}
		messages = append(messages, openai.AssistantMessage(fmt.Sprintf("It is the one of %d, in hall %d.", 1850+n%60, n%7)))
	}
}

// TestLoad checks that concurrent conversations succeed and share cached prefixes.
func TestLoad(t *testing.T) {
	p := serve(t, slow...)
	var all sync.WaitGroup
	for n := range 12 {
		all.Go(func() { p.converse(t.Context(), n) })
	}
	all.Wait()
	p.quiet(p.client)
	if f := p.stats(p.client); f.Requests != 48 || 2*f.CachedTokens < f.PromptTokens {
		t.Errorf("%+v: want 48 requests, and over half of their tokens cached", f)
	}
}
