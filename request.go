package coppice

import (
	"time"

	"github.com/coppice-llm/coppice/actors"
	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/kv"
)

// Request asks for the continuation of a prompt: Tokens, followed by the tokens of Prompt.
// The zero value of each other field is its default.
type Request struct {
	// Tokens are the beginning of the prompt, for example Ending.Tokens of the last turn of
	// a conversation.
	Tokens []kv.Token
	// Prompt is text; special tokens in it are encoded as such. If Tokens is empty, the
	// tokenizer's beginning-of-text token goes before it.
	Prompt string
	// Rendered says that Prompt is the output of a chat template: no beginning-of-text token
	// goes before it.
	Rendered bool
	// Plain are ascending byte offsets in Prompt at which no special token begins: what
	// reads like one there is encoded as text.
	Plain []int
	// Namespace separates requests that must not share cache. Default: all share.
	Namespace kv.Namespace
	// PublicTokens is the number of tokens at the beginning of the prompt that requests of
	// other salts may share, such as a system prompt without secrets; the rest belongs to the
	// Namespace. It is rounded down to whole pages, and means nothing without a salt.
	// Default: 0.
	PublicTokens int
	// Media are the spans of Tokens that stand for something else, such as the patches of an
	// image: by ascending At, without overlap. Spans with equal hashes have equal KV; nothing
	// is shared from the first difference on.
	Media []kv.Media
	// MaxTokens bounds the output. Default: Scheduler.DefaultMaxTokens, or all room that is
	// left.
	MaxTokens int
	// StopTokens end the output, in addition to the model's end-of-text tokens.
	StopTokens []kv.Token
	// IgnoreEOS continues past the model's end-of-text tokens.
	IgnoreEOS bool
	// Sampling chooses each token. Default: the most probable one.
	Sampling engine.SamplingParams
	// Digest asks for Ending.LogitDigest, to compare runs bit for bit.
	Digest bool

	// StopStrings end the output before the first of them in its text. With KeepStop the
	// text includes that string.
	StopStrings []string
	KeepStop    bool
	// Format is what the text must match. It is compiled once, in parallel to the steps, and
	// kept for later requests. The output ends where nothing can follow; where it may end,
	// the model decides. Default: anything matches.
	Format Format
	// MinTokens is the length below which no stop ends the output; a complete Format does.
	// Default: 0.
	MinTokens int
	// AllowedTokens are the only tokens that are sampled; include those that stop. Default:
	// all tokens.
	AllowedTokens []kv.Token
	// PromptLogprobs asks for Piece.PromptLogprobs. The whole prompt is computed then, cached
	// or not.
	PromptLogprobs bool
	// PromptTop is the number of tokens, up to 20, of Piece.PromptTop at each position; it
	// needs PromptLogprobs. Default: 0.
	PromptTop int32

	// Samples is the number of outputs, at most Scheduler.MaxSamples. They share the prompt,
	// which is computed once. Sample 0 is what the request yields with one sample; the others
	// use seeds derived from Sampling.Seed. Default: 1.
	Samples int
	// Tenant is the account that the request runs on, for limits and fair shares.
	Tenant string
	// Class groups requests with outputs of similar length: from those that ended, the
	// scheduler predicts the memory that the next ones need. Default: Tenant.
	Class string
	// Priority: higher runs first under the policy scheduler.Priority and is preempted last
	// under all; with Scheduler.Eviction radixcache.Priority its prefix stays cached longer.
	// Default: 0.
	Priority int32
	// Timeline asks for Ending.Timeline, the events of the request with their times.
	Timeline bool
	// Begun asks for a piece with nothing but Piece.Begun, when one of the samples enters a
	// step for the first time.
	Begun bool

	// Timeout ends the request with ErrDeadline. Default: never.
	Timeout time.Duration
	// QueueTimeout ends the request with ErrQueueTimeout if it waits so long for its first
	// step. Default: never.
	QueueTimeout time.Duration
}

// Format is what the text of an output must match: at most one of its fields is set.
type Format struct {
	// JSON: a JSON object.
	JSON bool
	// JSONSchema: JSON that this schema describes. The schema is JSON itself.
	JSONSchema string
	// Regexp: text that this expression matches from beginning to end. Syntax: RE2.
	Regexp string
	// Calls: calls of tools, as jsonschema.Calls describes them, in JSON:
	// {"tools": [{"name": …, "parameters": SCHEMA}], "most": 4, "answer": SCHEMA}, where
	// parameters and answer may be left out.
	Calls string
}

// inner converts a request.
func (r *Request) inner() actors.Request {
	return actors.Request{
		Tokens: r.Tokens, Prompt: r.Prompt, Rendered: r.Rendered, Plain: r.Plain, Namespace: r.Namespace, PublicTokens: r.PublicTokens, Media: r.Media,
		MaxTokens: r.MaxTokens, StopTokens: r.StopTokens, IgnoreEOS: r.IgnoreEOS, Sampling: r.Sampling, Digest: r.Digest,
		StopStrings: r.StopStrings, KeepStop: r.KeepStop, Format: actors.Format(r.Format), MinTokens: r.MinTokens, AllowedTokens: r.AllowedTokens,
		PromptLogprobs: r.PromptLogprobs, PromptTop: r.PromptTop, Samples: r.Samples, Tenant: r.Tenant, Class: r.Class, Priority: r.Priority,
		Timeline: r.Timeline, Begun: r.Begun, Timeout: r.Timeout, QueueTimeout: r.QueueTimeout,
	}
}
