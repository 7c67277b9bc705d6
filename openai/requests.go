package openai

import (
	"time"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/tokenizer/chat"
)

// Params are the fields that both endpoints have.
type Params struct {
	Generation
	Model     string // "" if not given
	User      string
	CacheSalt string // for the namespace
	Stream    bool
	// IncludeUsage: a stream ends with a chunk of usage.
	IncludeUsage bool
	// ContinuousUsage: each chunk of a stream has the usage so far.
	ContinuousUsage bool
	N               int // choices per prompt, 1 or more
	// Seeded: a seed was given. If not, Sampling.Seed is the server's to set.
	Seeded bool

	// NoOutput: max_tokens is 0. The node samples one token, which the answer leaves out.
	NoOutput bool

	Logprobs       bool // are shown, with TopLogprobs others in each place
	TopLogprobs    int
	ReturnTokenIDs bool
	PromptLogprobs bool // vLLM's prompt_logprobs are shown, with PromptTop others in each place
	PromptTop      int

	// Ignored are fields that were given and passed over, "messages[].cache_control".
	Ignored []string
	From    From
}

// Generation says how an output is made and where it ends.
type Generation struct {
	Sampling      Sampling
	MaxTokens     int // 0 if not given
	MinTokens     int
	IgnoreEOS     bool
	StopTokens    []kv.Token
	StopStrings   []string
	KeepStop      bool // the stop string is the end of the text
	AllowedTokens []kv.Token
	Format        Format
	Priority      int32
	PublicTokens  int // of the prompt, those that other salts may share
	Class         string
	Timeout       time.Duration // 0 if not given
	QueueTimeout  time.Duration
}

// Sampling says how tokens are drawn.
type Sampling struct {
	Temperature       float32 // 0 is greedy
	TopK              int32   // 0 is off
	TopP              float32 // 0 is off, and so below
	MinP              float32
	RepetitionPenalty float32
	PresencePenalty   float32
	FrequencyPenalty  float32
	Seed              uint64
	Bias              []TokenBias // ascending, each token once
}

// TokenBias is added to the logit of a token.
type TokenBias struct {
	Token kv.Token
	Bias  float32
}

// Format constrains the text of an output by one of its fields.
type Format struct {
	JSON       bool   // a JSON object
	JSONSchema string // JSON that the schema describes
	Regexp     string // the whole text; RE2
	// Calls of tools: {"tools": [{"name", "parameters": SCHEMA}], "most": 4, "answer": SCHEMA}.
	Calls string
}

// From names the fields that Format, MaxTokens and the prompt came from, for errors.
type From struct{ Format, Limit, Prompt string }

// Completion is a request to /v1/completions.
type Completion struct {
	Params
	Prompts []Prompt // one or more
	// Echo: the text of a choice begins with its prompt.
	Echo bool
}

// Prompt is Tokens, if they are not nil, or else Text.
type Prompt struct {
	Text   string
	Tokens []kv.Token
}

// Chat is a request to /v1/chat/completions.
type Chat struct {
	Params
	Messages []chat.Message // one or more
	// Options are what else the template sees; the server adds Now.
	Options chat.Options
	// ContinueFinal: the answer goes on in the last message; see CutFinal.
	ContinueFinal bool

	Calls Calls
}

// Calls selects how calls of tools in the text of an output are treated.
type Calls uint8

// The choices.
const (
	NoCalls     Calls = iota
	AnyCalls          // they are taken out of the text
	OneCall           // likewise, and only the first counts
	ForcedCalls       // the text is calls and nothing else
)

// Hints are what a request says to who chooses among pools of workers, where NVIDIA
// Dynamo's requests have it, as JSON values that nobody has judged; "" if not given.
type Hints struct {
	TTFT, ITL string // nvext.router.ttft_target and itl_target: milliseconds
	// Priority is nvext.agent_hints.priority, or else priority, at the top or in "coppice".
	Priority string
}

// Options say how requests are read. The zero value refuses unknown fields and takes
// OpenAI's sampling defaults.
type Options struct {
	UnknownFields UnknownFields
	// Sampling is for requests that do not say how to sample. Nil: temperature 1,
	// and all else off.
	Sampling *Sampling
}
