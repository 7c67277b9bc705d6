package scheduler

import (
	"fmt"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/kv"
)

// checkRequest checks the parts of a request that do not depend on time, and returns its output
// limit. A request that passes can run to its end on an otherwise empty pool. For example,
// with 100 pages of 16 tokens and 200 pinned tokens, prompt and output may have 1,401
// tokens together: the last one is never run.
func (c *Config) checkRequest(info *engine.Info, req *Request) (maxTokens int, err error) {
	n := len(req.Prompt)
	if n == 0 {
		return 0, refuse("Prompt", ErrEmptyPrompt, "give at least one token")
	}
	if n > info.MaxPositions {
		return 0, refuse("Prompt", ErrPromptTooLong, "%d tokens, the model has %d positions", n, info.MaxPositions)
	}
	// Pinned prefixes never make room.
	poolTokens := c.poolPages(info.NumPages)*info.PageTokens - c.PinnedTokens
	if n > poolTokens {
		return 0, refuse("Prompt", ErrTooLarge, "%d prompt tokens, the pool holds %d", n, poolTokens)
	}
	if i := foreign(info, req.Prompt); i >= 0 {
		return 0, refuse("Prompt", ErrInvalid, "prompt token %d is %d, the vocabulary has %d", i, req.Prompt[i], info.Vocab)
	}
	if err := req.Sampling.Validate(info.Vocab); err != nil {
		return 0, &FieldError{"Sampling", fmt.Errorf("%w: %w", ErrInvalid, err)}
	}
	if err := capable(info, req); err != nil {
		return 0, err
	}
	switch {
	case req.PublicTokens < 0:
		return 0, refuse("PublicTokens", ErrInvalid, "PublicTokens is %d, want 0 (none) or more", req.PublicTokens)
	case len(req.StopTokens) > maxStopTokens:
		return 0, refuse("StopTokens", ErrInvalid, "%d StopTokens, want at most %d", len(req.StopTokens), maxStopTokens)
	case req.Samples < 0 || req.Samples > c.MaxSamples:
		return 0, refuse("Samples", ErrInvalid, "Samples is %d, want 0 (one) to %d", req.Samples, c.MaxSamples)
	case req.Deadline < 0:
		return 0, refuse("Deadline", ErrInvalid, "Deadline is %v, want 0 (none) or more", req.Deadline)
	case !req.Speculate.valid():
		return 0, refuse("Speculate", ErrInvalid, "Speculate is %v, want auto, off or 1 to %d", req.Speculate, mostSpeculate)
	case req.QueueTimeout < 0:
		return 0, refuse("QueueTimeout", ErrInvalid, "QueueTimeout is %v, want 0 (none) or more", req.QueueTimeout)
	}
	if i := foreign(info, req.Prediction); i >= 0 {
		return 0, refuse("Prediction", ErrInvalid, "prediction token %d is %d, the vocabulary has %d", i, req.Prediction[i], info.Vocab)
	}
	if err := validMedia(req); err != nil {
		return 0, err
	}
	if err := c.checkText(info, req); err != nil {
		return 0, err
	}
	// The last output token is sampled and never run, so it needs neither position nor
	// page.
	modelRoom, poolRoom := info.MaxPositions-n+1, poolTokens-n+1
	switch {
	case req.MaxTokens < 0:
		return 0, refuse("MaxTokens", ErrInvalid, "MaxTokens is %d, want 0 (default) or more", req.MaxTokens)
	case req.MaxTokens > modelRoom:
		return 0, refuse("MaxTokens", ErrPromptTooLong, "%d prompt and %d output tokens, the model has %d positions",
			n, req.MaxTokens, info.MaxPositions)
	case req.MaxTokens > poolRoom:
		return 0, refuse("MaxTokens", ErrTooLarge, "%d prompt and %d output tokens, the pool holds %d",
			n, req.MaxTokens, poolTokens)
	}
	maxTokens = req.MaxTokens
	if maxTokens == 0 && req.Pooling == NoPooling {
		maxTokens = min(c.DefaultMaxTokens, modelRoom, poolRoom)
	}
	if req.MinTokens < 0 || req.MinTokens > maxTokens {
		return 0, refuse("MinTokens", ErrInvalid, "MinTokens is %d, want 0 to the output limit, %d", req.MinTokens, maxTokens)
	}
	return maxTokens, nil
}

// foreign returns the index of the first token that is not in the vocabulary, -1 if there
// is none.
func foreign(info *engine.Info, tokens []kv.Token) int {
	for i, t := range tokens {
		if uint64(t) >= uint64(info.Vocab) { // as int, a large token would be negative on 32 bits
			return i
		}
	}
	return -1
}

// capable refuses a request that needs more than the backend lists in Info.Capabilities.
func capable(info *engine.Info, req *Request) error {
	c := &info.Capabilities
	switch p := &req.Sampling; {
	case (p.Logprobs || p.TopLogprobs > 0) && !c.Logprobs:
		return &FieldError{"Logprobs", fmt.Errorf("%w: %w", ErrInvalid, info.CheckSampling(p))}
	case p.Penalised() && !c.Penalties:
		return &FieldError{"Penalties", fmt.Errorf("%w: %w", ErrInvalid, info.CheckSampling(p))}
	case req.PromptLogprobs && !c.PromptLogprobs:
		return refuse("PromptLogprobs", ErrInvalid, "the backend %s gives no log-probabilities of prompts", info.Name)
	case req.PromptTop < 0 || req.PromptTop > engine.MaxTopLogprobs || req.PromptTop > 0 && !req.PromptLogprobs:
		return refuse("PromptLogprobs", ErrInvalid, "PromptTop is %d, want 0 to %d, with PromptLogprobs", req.PromptTop, engine.MaxTopLogprobs)
	case info.MaxMasks == 0 && (req.Format != nil || len(req.AllowedTokens) > 0 || req.MinTokens > 0 && len(req.StopTokens) > 0):
		return refuse(maskField(req), ErrInvalid, "the backend %s keeps no masks of tokens", info.Name)
	case req.Digest && !c.Digests:
		return refuse("Digest", ErrInvalid, "the backend %s gives no digests of logits", info.Name)
	}
	return checkPooling(info, req)
}

// maskField returns the name of the field for which a request needs a mask.
func maskField(req *Request) string {
	switch {
	case req.Format != nil:
		return "Format"
	case len(req.AllowedTokens) > 0:
		return "AllowedTokens"
	default:
		return "MinTokens"
	}
}
