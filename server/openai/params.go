package openai

import (
	"maps"
	"math"
	"slices"
	"strconv"

	coppice "github.com/coppice-llm/coppice"
	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/kv"
)

// Limits of the fields of a request. A node may have lower ones, which it says.
const (
	MaxN            = 128     // choices per prompt
	MaxPrompts      = 2048    // of one completion request
	MaxPromptTokens = 1 << 24 // given as ids, of all prompts
	MaxStops        = 16      // stop strings
	MaxStopBytes    = 1024    // of all of them: what finds them takes up to 512 times as much, for each prompt
	MaxStopTokens   = 256
	MaxBiases       = 1024
	MaxAllowed      = 1 << 20 // allowed_token_ids
	MaxName         = 1024    // bytes of cache_salt and class, which outlive their request
	maxOutput       = 1 << 30 // max_tokens
	maxSeconds      = 86400   // timeout, queue_timeout, pins
)

// Params are what both endpoints have: what the server and the encoders look at. What
// the node is to do is in the requests that are made of them.
type Params struct {
	Model     string // "" if not given
	User      string
	CacheSalt string // for the namespace
	Stream    bool
	// IncludeUsage: a stream ends with a chunk of usage.
	IncludeUsage bool
	// ContinuousUsage: each chunk of a stream says what was used so far.
	ContinuousUsage bool
	N               int // choices per prompt, 1 or more
	// Seeded: a seed was given. If not, the server sets Sampling.Seed of its requests.
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

	request coppice.Request // all but the prompt

	// The fields that Format, MaxTokens and Prompt are from; see Blame.
	format, limit, prompt string
}

// reading is a request that is being read.
type reading struct {
	decoder
	*Params
	completion *Completion // one of them
	chat       *Chat

	bestOf        int
	newer         int // max_completion_tokens, which goes before max_tokens
	newerNone     bool
	streamOptions bool
	toolList      []tool
	wanted        toolChoice
	top           string // the path of top_logprobs, if given
}

// setter reads one field into r.
type setter func(r *reading, v value)

// Options say how requests are read. The zero value refuses unknown fields and takes
// OpenAI's sampling defaults.
type Options struct {
	UnknownFields UnknownFields
	// Sampling is what a request gets that does not say how to sample. Nil: temperature 1,
	// and all else off.
	Sampling *engine.SamplingParams
}

func newReading(p *Params, o Options) *reading {
	*p = Params{N: 1, limit: "max_tokens", prompt: "prompt"}
	p.request.Sampling.Temperature = 1
	if o.Sampling != nil {
		p.request.Sampling = *o.Sampling
	}
	return &reading{Params: p, decoder: decoder{unknowns: o.UnknownFields}}
}

// fields reads the members of v by the first of the tables that has them.
func (r *reading) fields(v value, what string, tables ...map[string]setter) {
	for _, f := range r.object(v, what) {
		if r.fault != nil {
			return
		}
		if set := find(f.name, tables); set != nil {
			set(r, f.value)
		} else if no, ok := refused[f.name]; !ok || v.path != "" {
			r.unknown(f)
		} else if !no.asksNothing(f.raw) {
			r.fail(f.path, "unsupported_parameter", "%s is not supported: %s", f.path, no.why)
		}
	}
}

func find(name string, tables []map[string]setter) setter {
	for _, t := range tables {
		if set := t[name]; set != nil {
			return set
		}
	}
	return nil
}

// shared are the fields of OpenAI's that both endpoints have.
var shared = map[string]setter{
	"model":  func(r *reading, v value) { r.Model = r.text(v) },
	"user":   func(r *reading, v value) { r.User = r.text(v) },
	"stream": func(r *reading, v value) { r.Stream = r.flag(v) },
	"n":      func(r *reading, v value) { r.N = int(r.integer(v, 1, MaxN)) },
	"seed": func(r *reading, v value) {
		r.request.Sampling.Seed, r.Seeded = uint64(r.integer(v, math.MinInt64, math.MaxInt64)), true
	},
	"temperature":       func(r *reading, v value) { r.request.Sampling.Temperature = r.number(v, 0, 2) },
	"top_p":             func(r *reading, v value) { r.request.Sampling.TopP = r.above(v, 1) },
	"presence_penalty":  func(r *reading, v value) { r.request.Sampling.PresencePenalty = r.number(v, -2, 2) },
	"frequency_penalty": func(r *reading, v value) { r.request.Sampling.FrequencyPenalty = r.number(v, -2, 2) },
	"max_tokens":        func(r *reading, v value) { r.request.MaxTokens, r.NoOutput = r.outputLimit(v) },
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
			r.fail(v.path, "unsupported_parameter", "%s is not supported: %s", v.path, why)
		}
	}
}

// outputLimit is max_tokens as the node has it, for which 0 is no limit.
func (r *reading) outputLimit(v value) (most int, none bool) {
	n := int(r.integer(v, 0, maxOutput))
	return max(n, 1), n == 0
}

func (r *reading) stop(v value) {
	if v.raw[0] == '"' {
		if s := r.text(v); s != "" { // "" is how some clients say none
			r.request.StopStrings = []string{s}
			r.stopBytes(v)
		}
		return
	}
	if v.raw[0] != '[' {
		r.want(v, "a string or an array of strings")
		return
	}
	r.request.StopStrings = r.texts(v, MaxStops)
	for i, s := range r.request.StopStrings {
		if s == "" {
			r.fail(v.index(i), "invalid_value", "%s is empty: the output would end before it began", v.index(i))
		}
	}
	r.stopBytes(v)
}

func (r *reading) stopBytes(v value) {
	n := 0
	for _, s := range r.request.StopStrings {
		n += len(s)
	}
	if n > MaxStopBytes {
		r.fail(v.path, "invalid_value", "%s has %d bytes, want at most %d", v.path, n, MaxStopBytes)
	}
}

// logitBias sorts by token, for the order in an object means nothing.
func (r *reading) logitBias(v value) {
	all := r.object(v, "an object of token ids and numbers")
	if len(all) > MaxBiases {
		r.fail(v.path, "invalid_value", "%s has %d tokens, want at most %d", v.path, len(all), MaxBiases)
		return
	}
	byToken := map[kv.Token]float32{}
	for _, f := range all {
		n, err := strconv.ParseUint(f.name, 10, 32)
		if err != nil {
			r.fail(f.path, "invalid_value", "%s has the key %q, want a token id", v.path, clip(f.name))
			return
		}
		byToken[kv.Token(n)] = r.number(f.value, -100, 100)
	}
	for _, t := range slices.Sorted(maps.Keys(byToken)) {
		r.request.Sampling.Bias = append(r.request.Sampling.Bias, engine.TokenBias{Token: t, Bias: byToken[t]})
	}
}

func (r *reading) streaming(v value) {
	r.streamOptions = true
	for _, f := range r.object(v, "an object") {
		switch f.name {
		case "include_usage":
			r.IncludeUsage = r.flag(f.value)
		case "include_obfuscation":
			r.flag(f.value) // padding against who watches the line's sizes; there is none
		case "continuous_usage_stats":
			r.ContinuousUsage = r.flag(f.value)
		default:
			r.unknown(f)
		}
	}
}

// finish checks what fields say together.
func (r *reading) finish() error {
	q := &r.request
	switch {
	case r.fault != nil:
	case r.bestOf != 0 && r.bestOf != r.N:
		r.fail("best_of", "unsupported_parameter", "best_of is %d and n %d: samples are not ranked, give as many as n or leave it out", r.bestOf, r.N)
	case q.MaxTokens > 0 && q.MinTokens > q.MaxTokens:
		r.fail("min_tokens", "invalid_value", "min_tokens is %d, want at most max_tokens, %d", q.MinTokens, q.MaxTokens)
	case r.NoOutput && q.MinTokens > 0:
		r.fail("min_tokens", "invalid_value", "min_tokens is %d, but no output is asked for", q.MinTokens)
	case r.Stream && r.PromptLogprobs:
		r.fail("prompt_logprobs", "unsupported_parameter", "prompt_logprobs are not streamed: leave stream out")
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
		r.limit = "max_completion_tokens"
	}
	if r.chat != nil {
		r.prompt = "messages"
	}
	q.Samples = r.N
	q.Sampling.Logprobs, q.Sampling.TopLogprobs = r.Logprobs, int32(r.TopLogprobs)
	q.PromptLogprobs = q.PromptLogprobs || r.PromptLogprobs
	q.PromptTop = max(q.PromptTop, int32(r.PromptTop))
	return nil
}
