package openai

import (
	"maps"
	"math"
	"slices"
	"strconv"

	"github.com/coppice-llm/coppice/conversation"
	"github.com/coppice-llm/coppice/internal/jsonbody"
	"github.com/coppice-llm/coppice/kv"
)

// Limits of the fields of a request. A node may have lower ones.
const (
	maxN            = 128     // choices per prompt
	maxPrompts      = 2048    // per completion request
	maxPromptTokens = 1 << 24 // given as ids, over all prompts
	maxTexts        = 1024    // of guided_choice
	maxStopTokens   = 256
	maxBiases       = 1024
	maxAllowed      = 1 << 20 // allowed_token_ids
	maxOutput       = 1 << 30 // max_tokens
	maxSeconds      = 86400   // for timeout, queue_timeout and pins
	maxSpeculate    = 1024    // drafts of a step
	MaxTopLogprobs  = 20      // alternatives per position
)

// shared are OpenAI's fields common to both endpoints.
var shared = map[string]setter{
	"model":  func(r *reading, v value) { r.Model = r.Again(v, r.last.model) },
	"user":   func(r *reading, v value) { r.User = r.Again(v, r.last.user) },
	"stream": func(r *reading, v value) { r.Stream = r.Flag(v) },
	"n":      func(r *reading, v value) { r.N = max(int(r.Integer(v, 1, maxN)), 1) },
	"seed": func(r *reading, v value) {
		r.Sampling.Seed, r.Seeded = uint64(r.Integer(v, math.MinInt64, math.MaxInt64)), true
	},
	"temperature":       func(r *reading, v value) { r.Sampling.Temperature = r.Number(v, 0, 2) },
	"top_p":             func(r *reading, v value) { r.Sampling.TopP = r.Above(v, 1) },
	"presence_penalty":  func(r *reading, v value) { r.Sampling.PresencePenalty = r.Number(v, -2, 2) },
	"frequency_penalty": func(r *reading, v value) { r.Sampling.FrequencyPenalty = r.Number(v, -2, 2) },
	"max_tokens":        func(r *reading, v value) { r.NoOutput = r.outputLimit(v, &r.MaxTokens) },
	"stop":              func(r *reading, v value) { r.StopStrings = conversation.ReadStops(&r.Decoder, v) },
	"logit_bias":        (*reading).logitBias,
	"stream_options":    (*reading).streaming,
	"response_format":   (*reading).responseFormat,
}

// logitBias replaces the server's default. It sorts by token, because the order in an object has no
// meaning.
func (r *reading) logitBias(v value) {
	all := r.Object(v, "an object of token ids and numbers")
	if len(all) > maxBiases {
		r.Fail(v, "invalid_value", "%s has %d tokens, want at most %d", v, len(all), maxBiases)
	}
	byToken := map[kv.Token]float32{}
	for _, f := range all {
		n, err := strconv.ParseUint(string(f.Name), 10, 32)
		if err != nil {
			r.Fail(f, "invalid_value", "%s has the key %q, want a token id", v, jsonbody.Clip(string(f.Name)))
		}
		byToken[kv.Token(n)] = r.Number(f.Value, -100, 100)
	}
	r.Sampling.Bias = nil // not the default's array, which all requests share
	for _, t := range slices.Sorted(maps.Keys(byToken)) {
		r.Sampling.Bias = append(r.Sampling.Bias, conversation.TokenBias{Token: t, Bias: byToken[t]})
	}
}

// streaming reads stream_options.
func (r *reading) streaming(v value) {
	r.streamOptions = true
	r.Fields(v, "stream_options.", map[string]func(value){
		"include_usage":          func(v value) { r.IncludeUsage = r.Flag(v) },
		"include_obfuscation":    func(v value) { r.Flag(v) }, // padding against traffic analysis; not implemented
		"continuous_usage_stats": func(v value) { r.ContinuousUsage = r.Flag(v) },
	})
}
