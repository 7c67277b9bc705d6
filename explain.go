package coppice

import (
	"context"
	"slices"
	"time"

	"github.com/coppice-llm/coppice/scheduler"
)

// Explain reports how much of the prompt of r is cached in which tier, why not more, and
// what a Node without other requests would compute for it. It reads the fields Tokens,
// Prompt, Rendered, Plain, Namespace, PublicTokens, Media, PromptLogprobs, Embed and Tenant of r.
// It changes nothing: the prefix counts as used no more recently than before. Its result
// does not depend on what other namespaces hold, except for a public prefix. It fails with
// ErrNoCache if the cache is off, and as Generate does for a prompt that can't be served.
// Steps wait for it about as long as the prompt's tokens take to compare.
func (n *Node) Explain(ctx context.Context, r Request) (scheduler.Explanation, error) {
	tokens := slices.Clone(r.Tokens)
	if r.Prompt != "" {
		text, err := n.Tokenize(ctx, Text{Tenant: r.Tenant, Namespace: r.Namespace, Text: r.Prompt, Rendered: r.Rendered || len(tokens) > 0, Plain: r.Plain, Bounded: true})
		if err != nil {
			return scheduler.Explanation{}, err
		}
		tokens = append(tokens, text...)
	}
	req := &scheduler.Request{Prompt: tokens, Namespace: r.Namespace, PublicTokens: r.PublicTokens, Media: slices.Clone(r.Media), PromptLogprobs: r.PromptLogprobs, Pooling: r.Embed.Pooling}
	type answer struct {
		scheduler.Explanation
		err error
	}
	a, err := ask(ctx, n, func(core *scheduler.Scheduler, now time.Duration) (a answer) {
		a.Explanation, a.err = core.Explain(now, req)
		return a
	})
	if err == nil {
		err = public(a.err)
	}
	return a.Explanation, err
}
