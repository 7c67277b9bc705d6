package conversation

import (
	"bytes"
	"cmp"
	"encoding/json"
	"time"

	"github.com/coppice-llm/coppice/kv"
)

// Params are the parameters of a request for text, in whatever API.
type Params struct {
	Generation
	Model     string // "" if absent
	User      string
	CacheSalt string // selects the cache namespace
	// Session names the conversation that the request belongs to, "" if it has no name.
	Session string
	Stream  bool
	N       int // choices per prompt, at least 1
	// Seeded reports that a seed was given. Otherwise the server sets Sampling.Seed.
	Seeded bool

	// NoOutput: max_tokens is 0. The node samples one token, which the answer leaves out.
	NoOutput bool

	Logprobs       bool // show log-probabilities, with TopLogprobs alternatives per position
	TopLogprobs    int
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
	// Calls describes tool calls, as jsonschema.ToolCalls does: {"auto": true, "form": NAME, "tools":
	// [{"name", "parameters": SCHEMA}], "most": 4, "answer": SCHEMA}.
	Calls string
}

// SchemaFormat returns the format of a JSON value that matches schema, which is valid JSON. White space is
// removed, so that the node compiles equal schemas once.
func SchemaFormat(schema []byte) Format {
	var b bytes.Buffer
	if err := json.Compact(&b, schema); err != nil {
		panic("conversation: a sound schema can't be compacted: " + err.Error())
	}
	return Format{JSONSchema: b.String()}
}

// From names the fields that Format, MaxTokens and the prompt came from, for errors, and how the API understands them.
type From struct {
	Format, Limit, Prompt string
	// Answer says that Format is that of an answer, which a call of a tool does without.
	Answer bool
	// Reduced says that the API reduces Limit to what the model's context and the pool have room for beside the
	// prompt. Otherwise a request for more is refused.
	Reduced bool
}

// NewParams returns the parameters of a request without any: one choice, and the sampling parameters
// of defaults, or with nil temperature 1 and everything else off. limit and prompt are the API's
// names of MaxTokens and of the prompt.
func NewParams(defaults *Sampling, limit, prompt string) Params {
	p := Params{N: 1, From: From{Limit: limit, Prompt: prompt}}
	p.Sampling.Temperature = 1
	if defaults != nil {
		p.Sampling = *defaults
	}
	return p
}

// Fits returns an *Error if a token is not in a vocabulary of that size.
func (p *Params) Fits(vocab int) error {
	biased := make([]kv.Token, len(p.Sampling.Bias))
	for i, b := range p.Sampling.Bias {
		biased[i] = b.Token
	}
	return cmp.Or(Fit("stop_token_ids", p.StopTokens, vocab), Fit("allowed_token_ids", p.AllowedTokens, vocab), Fit("logit_bias", biased, vocab))
}

// Fit returns an *Error, which names the field param, if one of tokens is not in a vocabulary of that size.
func Fit(param string, tokens []kv.Token, vocab int) error {
	for _, t := range tokens {
		if uint64(t) >= uint64(vocab) {
			return Invalid(param, "invalid_value", "%s has token %d, but the vocabulary has %d tokens", param, t, vocab)
		}
	}
	return nil
}
