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
	// Rendered marks Prompt as the output of a chat template: no beginning-of-text token is put
	// before it.
	Rendered bool
	// Plain lists ascending byte offsets in Prompt at which special tokens are not recognised:
	// text there that looks like one is encoded as text.
	Plain []int
	// Namespace separates requests that must not share cache. Default: all share.
	Namespace kv.Namespace
	// PublicTokens is the number of tokens at the beginning of the prompt that requests with
	// other salts may share, such as a system prompt without secrets; the rest belongs to the
	// Namespace. It is rounded down to whole pages, and has no effect without a salt. Default:
	// 0.
	PublicTokens int
	// Media lists the spans of Tokens that stand for other content, such as the patches of an
	// image, by ascending At and without overlap. Spans with equal hashes have equal KV; from
	// the first difference on, nothing is shared.
	Media []kv.Media
	// MaxTokens bounds the output. Default: Scheduler.DefaultMaxTokens, or as many as fit.
	MaxTokens int
	// StopTokens end the output, in addition to the model's end-of-text tokens.
	StopTokens []kv.Token
	// IgnoreEOS continues past the model's end-of-text tokens.
	IgnoreEOS bool
	// Sampling selects how each token is chosen. Default: the most probable one.
	Sampling engine.SamplingParams
	// Digest requests Ending.LogitDigest, to compare runs bit by bit.
	Digest bool

	// StopStrings end the output before the first of them in its text. With KeepStop the
	// text includes that string.
	StopStrings []string
	KeepStop    bool
	// Format constrains the text. It is compiled once, in parallel to the steps, and cached. The
	// output ends where no continuation matches; where it may end or continue, the model
	// decides. Default: any text.
	Format Format
	// MinTokens is the length below which no stop token or string ends the output; a complete
	// Format does. Default: 0.
	MinTokens int
	// AllowedTokens, if given, are the only tokens that may be sampled; include the stop tokens.
	// Default: all tokens.
	AllowedTokens []kv.Token
	// PromptLogprobs requests Piece.PromptLogprobs. The whole prompt is then computed, even if
	// it is cached.
	PromptLogprobs bool
	// PromptTop is the number of tokens per position in Piece.PromptTop, up to 20; it needs
	// PromptLogprobs. Default: 0.
	PromptTop int32

	// Samples is the number of outputs, at most Scheduler.MaxSamples. They share the prompt,
	// which is computed once. Sample 0 equals the output of a request with one sample; the
	// others use seeds derived from Sampling.Seed. Default: 1.
	Samples int
	// Tenant is the account of the request, for limits and fair shares.
	Tenant string
	// Class groups requests with outputs of similar length: from the ended requests of a class,
	// the scheduler predicts the memory that the next ones need. Default: Tenant.
	Class string
	// Priority: higher runs first under the policy scheduler.Priority and is preempted last
	// under all; with Scheduler.Eviction radixcache.Priority its prefix stays cached longer.
	// Default: 0.
	Priority int32
	// Timeline requests Ending.Timeline, the events of the request with their times.
	Timeline bool
	// Begun requests an extra piece with Piece.Begun, when the first sample enters a step.
	Begun bool

	// Timeout ends the request with ErrDeadline. Default: never.
	Timeout time.Duration
	// QueueTimeout ends the request with ErrQueueTimeout if it waits that long for its first
	// step. Default: never.
	QueueTimeout time.Duration
}

// Format constrains the text of an output. At most one field may be set.
type Format struct {
	// JSON permits any JSON object.
	JSON bool
	// JSONSchema permits the JSON values that this schema describes. The schema is JSON itself.
	JSONSchema string
	// Regexp permits the texts that this expression matches from beginning to end. Syntax: RE2.
	Regexp string
	// Calls permits calls of tools, as jsonschema.Calls describes them, in JSON: {"tools":
	// [{"name": …, "parameters": SCHEMA}], "most": 4, "answer": SCHEMA}. Both parameters and
	// answer are optional.
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
