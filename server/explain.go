package server

import (
	"net/http"

	"github.com/coppice-llm/coppice"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/openai"
	"github.com/coppice-llm/coppice/radixcache"
	"github.com/coppice-llm/coppice/scheduler"
)

// explanation is the answer of POST /v1/cache/explain.
type explanation struct {
	Text           string         `json:"text"` // all of it in sentences
	PromptTokens   int            `json:"prompt_tokens"`
	CachedByTier   map[string]int `json:"cached_tokens_by_tier"`
	MatchedTokens  int            `json:"matched_tokens"` // whole pages on the device
	Why            string         `json:"why"`            // the match ends there
	Removed        *removal       `json:"removed,omitempty"`
	CopiedTokens   int            `json:"copied_tokens"`
	FetchedTokens  int            `json:"fetched_tokens"`
	ComputedTokens int            `json:"computed_tokens"`
}

// removal describes how the page after the match left the device, if it was there.
type removal struct {
	Reason         string `json:"reason"`
	Policy         string `json:"policy"`
	AccessesAgo    uint64 `json:"accesses_ago"`
	UnusedAccesses uint64 `json:"unused_accesses"`
}

// explain answers POST /v1/cache/explain: why the prompt of a request misses the cache, and what the
// request would run. The prompt is looked up in the namespace that the caller's own request would
// have, so that the answer tells nothing of other tenants.
func (c *call) explain() error {
	ask, err := read(c, func(b []byte) (*openai.Explain, error) { return openai.DecodeExplain(b, c.s.screen.reading) })
	if err != nil {
		return err
	}
	leave, err := c.s.cfg.Node.Enter()
	if err != nil {
		return err
	}
	defer leave()
	p := ask.Params()
	if err := c.accept(p, 1); err != nil {
		return err
	}
	reqs := make([]coppice.Request, 1)
	switch {
	case ask.Chat != nil:
		reqs[0], err = c.chatRequest(ask.Chat)
	case len(ask.Completion.Prompts) > 1:
		err = openai.NewError(http.StatusBadRequest, "invalid_value", "prompt has %d prompts, want one", len(ask.Completion.Prompts)).At("prompt")
	default:
		reqs[0], err = c.s.completionRequest(ask.Completion, 0)
	}
	if err != nil {
		return err
	}
	c.prepare(&reqs[0], p)
	if err := c.encode(reqs); err != nil {
		return blame(p, err)
	}
	e, err := c.s.cfg.Node.Explain(c.r.Context(), reqs[0])
	if err != nil {
		return blame(p, err)
	}
	return c.marshal(explanationOf(&e))
}

func explanationOf(e *scheduler.Explanation) explanation {
	d := &e.Device
	a := explanation{
		Text: e.String(), PromptTokens: e.PromptTokens, CachedByTier: map[string]int{}, MatchedTokens: d.Tokens, Why: d.Why.String(),
		CopiedTokens: e.CopiedTokens, FetchedTokens: e.FetchedTokens, ComputedTokens: e.ComputedTokens,
	}
	for tier, n := range e.Cached {
		if n > 0 || tier == int(kv.TierDevice) {
			a.CachedByTier[kv.Tier(tier).String()] = n
		}
	}
	if d.Why == radixcache.WhyEvicted {
		a.Removed = &removal{d.Reason.String(), d.Policy.String(), d.Ago, d.Unused}
	}
	return a
}
