package openai

import (
	"github.com/coppice-llm/coppice/conversation"
	"github.com/coppice-llm/coppice/kv"
)

// Shown are the options of an answer's form.
type Shown struct {
	// IncludeUsage makes a stream end with a chunk of usage.
	IncludeUsage bool
	// ContinuousUsage adds the usage so far to each chunk of a stream.
	ContinuousUsage bool
	ReturnTokenIDs  bool
}

// Completion is a request to /v1/completions.
type Completion struct {
	conversation.Params
	Shown
	Prompts []Prompt // at least one
	// Echo makes the text of a choice begin with its prompt.
	Echo bool
}

// Prompt is a prompt given as Tokens, or as Text if Tokens is nil.
type Prompt struct {
	Text   string
	Tokens []kv.Token
}

// Chat is a request to /v1/chat/completions.
type Chat struct {
	conversation.Turn
	Shown
}

// Hints are a request's wishes for the choice among pools of workers, in the fields of NVIDIA
// Dynamo's requests, as raw JSON values; "" if absent.
type Hints struct {
	TTFT, ITL string // nvext.router.ttft_target and itl_target, in milliseconds
	// Priority is nvext.agent_hints.priority, else priority at the top level, else in "coppice".
	Priority string
}

// Options configure the decoding of requests. The zero value refuses unknown fields and uses
// OpenAI's sampling defaults.
type Options struct {
	UnknownFields UnknownFields
	// Sampling holds the defaults of sampling parameters. nil: temperature 1, and everything
	// else off.
	Sampling *conversation.Sampling
	// CallForm is the name of the form of the model's tool calls, one of package toolcall's. "": hermes.
	CallForm string
}
