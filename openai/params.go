package openai

import (
	"maps"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/coppice-llm/coppice/kv"
)

// Limits of the fields of a request. A node may have lower ones, which it says.
const (
	maxN            = 128     // choices per prompt
	maxPrompts      = 2048    // of one completion request
	maxPromptTokens = 1 << 24 // given as ids, of all prompts
	maxStops        = 16      // stop strings
	maxStopBytes    = 1024    // of all of them: what finds them takes up to 512 times as much, for each prompt
	maxStopTokens   = 256
	maxBiases       = 1024
	maxAllowed      = 1 << 20 // allowed_token_ids
	maxName         = 1024    // bytes of cache_salt and class, which outlive their request
	maxOutput       = 1 << 30 // max_tokens
	maxSeconds      = 86400   // timeout, queue_timeout, pins
	MaxTopLogprobs  = 20      // others in each place
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
	// ContinuousUsage: each chunk of a stream says what was used so far.
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

// Format is what the text of an output has to match: one of its fields.
type Format struct {
	JSON       bool   // a JSON object
	JSONSchema string // JSON that the schema describes
	Regexp     string // the whole text; RE2
	// Calls of tools: {"tools": [{"name", "parameters": SCHEMA}], "most": 4, "answer": SCHEMA}.
	Calls string
}

// From names the fields that Format, MaxTokens and the prompt came from, for errors.
type From struct{ Format, Limit, Prompt string }

// reading is a request that is being read.
type reading struct {
	decoder
	*Params
	completion *Completion // one of them
	chat       *Chat
	peeked     *Peeked                            // of a proxy, or nil
	last       struct{ model, user, salt string } // of the request before, often those of this one too

	bestOf        int
	newer         int // max_completion_tokens, which goes before max_tokens
	newerNone     bool
	streamOptions bool
	toolList      []tool
	wanted        toolChoice
	top           place // of top_logprobs, if given
}

// setter reads one field into r.
type setter func(r *reading, v value)

// Options say how requests are read. The zero value refuses unknown fields and takes
// OpenAI's sampling defaults.
type Options struct {
	UnknownFields UnknownFields
	// Sampling is what a request gets that does not say how to sample. Nil: temperature 1,
	// and all else off.
	Sampling *Sampling
}

func newReading(p *Params, o Options) *reading {
	*p = Params{N: 1, From: From{Limit: "max_tokens", Prompt: "prompt"}}
	p.Sampling.Temperature = 1
	if o.Sampling != nil {
		p.Sampling = *o.Sampling
	}
	return &reading{Params: p, decoder: decoder{unknowns: o.UnknownFields, kept: make([]field, 0, 24)}}
}

// within reads the members of v, which is called under, by the first of the tables that has
// them.
func (r *reading) within(under string, v value, tables ...map[string]setter) {
	r.under = under
	for _, f := range r.object(v, "an object") {
		if r.fault != nil {
			return
		}
		if set := find(f.name, tables...); set != nil {
			set(r, f.value)
		} else if no, ok := refused[string(f.name)]; !ok || under != "" {
			r.unknown("", f)
		} else if !no.asksNothing(f.raw) {
			r.fail(f, Unsupported, "%s is not supported: %s", f, no.why)
		}
	}
	r.under = ""
}

func find(name []byte, tables ...map[string]setter) setter {
	for _, t := range tables {
		if set := t[string(name)]; set != nil {
			return set
		}
	}
	return nil
}

// shared are the fields of OpenAI's that both endpoints have.
var shared = map[string]setter{
	"model":  func(r *reading, v value) { r.Model = r.again(v, r.last.model) },
	"user":   func(r *reading, v value) { r.User = r.again(v, r.last.user) },
	"stream": func(r *reading, v value) { r.Stream = r.flag(v) },
	"n":      func(r *reading, v value) { r.N = max(int(r.integer(v, 1, maxN)), 1) },
	"seed": func(r *reading, v value) {
		r.Sampling.Seed, r.Seeded = uint64(r.integer(v, math.MinInt64, math.MaxInt64)), true
	},
	"temperature":       func(r *reading, v value) { r.Sampling.Temperature = r.number(v, 0, 2) },
	"top_p":             func(r *reading, v value) { r.Sampling.TopP = r.above(v, 1) },
	"presence_penalty":  func(r *reading, v value) { r.Sampling.PresencePenalty = r.number(v, -2, 2) },
	"frequency_penalty": func(r *reading, v value) { r.Sampling.FrequencyPenalty = r.number(v, -2, 2) },
	"max_tokens":        func(r *reading, v value) { r.NoOutput = r.outputLimit(v, &r.MaxTokens) },
	"stop":              (*reading).stop,
	"logit_bias":        (*reading).logitBias,
	"stream_options":    (*reading).streaming,
	"response_format":   (*reading).responseFormat,
}

// passed are fields that say nothing about the output; they may be anything.
func passed(*reading, value) {}

// refusal says why a field is refused, but with the one value that asks for nothing.
type refusal struct{ unless, why string }

// asksNothing reports whether the value is the one that changes nothing.
func (n refusal) asksNothing(raw []byte) bool {
	if n.unless == "1" {
		one, ok := whole(raw)
		return ok && one == 1
	}
	return string(raw) == n.unless
}

// refused are fields of the interface that the server lacks.
var refused = map[string]refusal{
	"audio":                      {"", "answers are text"},
	"best_of":                    {"", "give n"},
	"bad_words":                  {"[]", "give logit_bias"},
	"chat_template":              {"", "the model's own is used"},
	"echo":                       {"false", "/v1/completions has it"},
	"early_stopping":             {"false", "it is for beam search"},
	"function_call":              {"", "give tool_choice"},
	"functions":                  {"", "give tools"},
	"guided_grammar":             {"", "give a JSON schema or a regular expression"},
	"length_penalty":             {"1", "it is for beam search"},
	"include_reasoning":          {"true", "reasoning is told apart, and told"},
	"logits_processors":          {"[]", "give logit_bias"},
	"mm_processor_kwargs":        {"", "prompts are text"},
	"no_stop_trim":               {"false", "give include_stop_str_in_output"},
	"prediction":                 {"", "the server drafts by itself or not at all"},
	"prompt_embeds":              {"", "give text or token ids"},
	"return_hidden_states":       {"false", "answers are text"},
	"return_tokens_as_token_ids": {"false", "give return_token_ids"},
	"separate_reasoning":         {"true", "reasoning is told apart"},
	"skip_special_tokens":        {"true", "text has no special tokens in it; give return_token_ids"},
	"store":                      {"false", "nothing is stored"},
	"stream_reasoning":           {"true", "reasoning is streamed"},
	"suffix":                     {"", "text is continued, not filled in"},
	"truncate_prompt_tokens":     {"", "a prompt is taken whole or refused"},
	"use_beam_search":            {"false", "give n"},
	"web_search_options":         {"", "the server reaches nothing"},
}

// special reads add_special_tokens of vLLM, where always is what the server does anyway.
func special(always bool, why string) setter {
	return func(r *reading, v value) {
		if r.flag(v) != always {
			r.fail(v, Unsupported, "%s is not supported: %s", v, why)
		}
	}
}

// outputLimit is max_tokens as the node has it, for which 0 is no limit.
func (r *reading) outputLimit(v value, most *int) (none bool) {
	n, ok := r.whole(v, 0, maxOutput)
	if ok {
		*most = max(int(n), 1)
	}
	return ok && n == 0
}

func (r *reading) stop(v value) {
	if v.raw[0] == '"' {
		if s := r.text(v); s != "" { // "" is how some clients say none
			r.StopStrings = []string{s}
			r.stopBytes(v)
		}
		return
	}
	if v.raw[0] != '[' {
		r.want(v, "a string or an array of strings")
		return
	}
	r.StopStrings = r.texts(v, maxStops)
	for i, s := range r.StopStrings {
		if s == "" {
			r.fail(v.index(i), "invalid_value", "%s is empty: the output would end before it began", v.index(i))
		}
	}
	r.stopBytes(v)
}

func (r *reading) stopBytes(v value) {
	n := 0
	for _, s := range r.StopStrings {
		n += len(s)
	}
	if n > maxStopBytes {
		r.fail(v, "invalid_value", "%s has %d bytes, want at most %d", v, n, maxStopBytes)
	}
}

// logitBias sorts by token, for the order in an object means nothing.
func (r *reading) logitBias(v value) {
	all := r.object(v, "an object of token ids and numbers")
	if len(all) > maxBiases {
		r.fail(v, "invalid_value", "%s has %d tokens, want at most %d", v, len(all), maxBiases)
		return
	}
	byToken := map[kv.Token]float32{}
	for _, f := range all {
		n, err := strconv.ParseUint(string(f.name), 10, 32)
		if err != nil {
			r.fail(f, "invalid_value", "%s has the key %q, want a token id", v, clip(string(f.name)))
			return
		}
		byToken[kv.Token(n)] = r.number(f.value, -100, 100)
	}
	for _, t := range slices.Sorted(maps.Keys(byToken)) {
		r.Sampling.Bias = append(r.Sampling.Bias, TokenBias{Token: t, Bias: byToken[t]})
	}
}

func (r *reading) streaming(v value) {
	r.streamOptions = true
	for _, f := range r.object(v, "an object") {
		switch string(f.name) {
		case "include_usage":
			r.IncludeUsage = r.flag(f.value)
		case "include_obfuscation":
			r.flag(f.value) // padding against who watches the line's sizes; there is none
		case "continuous_usage_stats":
			r.ContinuousUsage = r.flag(f.value)
		default:
			r.unknown("stream_options.", f)
		}
	}
}

// finish checks what fields say together.
func (r *reading) finish() error {
	q := &r.Generation
	switch {
	case r.fault != nil:
	case r.bestOf != 0 && r.bestOf != r.N:
		r.fail(param("best_of"), Unsupported, "best_of is %d and n %d: samples are not ranked, give as many as n or leave it out", r.bestOf, r.N)
	case q.MaxTokens > 0 && q.MinTokens > q.MaxTokens:
		r.fail(param("min_tokens"), "invalid_value", "min_tokens is %d, want at most max_tokens, %d", q.MinTokens, q.MaxTokens)
	case r.NoOutput && q.MinTokens > 0:
		r.fail(param("min_tokens"), "invalid_value", "min_tokens is %d, but no output is asked for", q.MinTokens)
	case r.Stream && r.PromptLogprobs:
		r.fail(param("prompt_logprobs"), Unsupported, "prompt_logprobs are not streamed: leave stream out")
	}
	if r.fault != nil {
		return r.fault
	}
	if r.streamOptions && !r.Stream {
		r.ContinuousUsage = false
		r.ignore("stream_options")
	}
	r.Ignored = r.ignored
	if r.newer > 0 {
		r.From.Limit = "max_completion_tokens"
	}
	if r.chat != nil {
		r.From.Prompt = "messages"
	}
	return nil
}
