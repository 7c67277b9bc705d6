package openai

import (
	"time"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/tokenizer/chat"
)

// Params are the fields common to both endpoints.
type Params struct {
	Generation
	Model     string // "" if absent
	User      string
	CacheSalt string // selects the cache namespace
	Stream    bool
	// IncludeUsage makes a stream end with a chunk of usage.
	IncludeUsage bool
	// ContinuousUsage adds the usage so far to each chunk of a stream.
	ContinuousUsage bool
	N               int // choices per prompt, at least 1
	// Seeded reports that a seed was given. Otherwise the server sets Sampling.Seed.
	Seeded bool

	// NoOutput: max_tokens is 0. The node samples one token, which the answer leaves out.
	NoOutput bool

	Logprobs       bool // show log-probabilities, with TopLogprobs alternatives per position
	TopLogprobs    int
	ReturnTokenIDs bool
	PromptLogprobs bool // show vLLM's prompt_logprobs, with PromptTop alternatives per position
	PromptTop      int

	// Ignored are the given fields that were ignored, as "messages[].cache_control".
	Ignored []string
	From    From
}

// Generation has the parameters of an output: sampling, limits, stops and format.
type Generation struct {
	Sampling      Sampling
	MaxTokens     int // 0 if absent
	MinTokens     int
	IgnoreEOS     bool
	StopTokens    []kv.Token
	StopStrings   []string
	KeepStop      bool // keep the stop string at the end of the text
	AllowedTokens []kv.Token
	Format        Format
	Priority      int32
	PublicTokens  int // number of leading prompt tokens that other salts may share
	Class         string
	Speculate     int16         // 0 if absent, -1 off, -2 auto, else the number, as scheduler.Speculate
	Timeout       time.Duration // 0 if absent
	QueueTimeout  time.Duration
}

// Sampling holds the sampling parameters.
type Sampling struct {
	Temperature       float32 // 0: greedy
	TopK              int32   // 0: off
	TopP              float32 // 0: off, also for the fields below
	MinP              float32
	RepetitionPenalty float32
	PresencePenalty   float32
	FrequencyPenalty  float32
	Seed              uint64
	Bias              []TokenBias // ascending by token, no duplicates
}

// TokenBias is added to the logit of a token.
type TokenBias struct {
	Token kv.Token
	Bias  float32
}

// Format constrains the text of an output; one field is set.
type Format struct {
	JSON       bool   // a JSON object
	JSONSchema string // a JSON value that matches the schema
	Regexp     string // an RE2 expression for the whole text
	// Calls describes tool calls, as actors.Format does: {"auto": true, "form": NAME, "tools":
	// [{"name", "parameters": SCHEMA}], "most": 4, "answer": SCHEMA}.
	Calls string
}

// From names the fields that Format, MaxTokens and the prompt came from, for errors.
type From struct{ Format, Limit, Prompt string }

// Completion is a request to /v1/completions.
type Completion struct {
	Params
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
	Params
	Messages []chat.Message // at least one
	// Options are the template's further inputs; the server adds Now.
	Options chat.Options
	// ContinueFinal makes the answer continue the last message; see CutFinal.
	ContinueFinal bool
	// Prediction is text that the output is expected to repeat in large parts. It changes the speed of the
	// output alone.
	Prediction string

	Calls Calls
	// ToolNames are the names of the tools that an output may call.
	ToolNames []string
}

// Calls selects how tool calls in the text of an output are treated.
type Calls uint8

// Values of Calls.
const (
	NoCalls     Calls = iota
	AnyCalls          // calls are separated from the text
	OneCall           // likewise, and only the first is kept
	ForcedCalls       // the text consists of calls only
)

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
	Sampling *Sampling
	// CallForm is the name of the form of the model's tool calls, one of package toolcall's. "": hermes.
	CallForm string
}
