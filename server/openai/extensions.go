package openai

import (
	"math"
	"time"

	"github.com/coppice-llm/coppice/engine"
)

// extensions are fields that OpenAI's interface does not have, under the names of
// vLLM (and SGLang: regex), at the top or in the object "coppice".
var extensions = map[string]setter{
	"top_k": func(r *reading, v value) { // -1 is off as well
		r.request.Sampling.TopK = int32(max(r.integer(v, -1, math.MaxInt32), 0))
	},
	"min_p":              func(r *reading, v value) { r.request.Sampling.MinP = r.number(v, 0, 1) },
	"repetition_penalty": func(r *reading, v value) { r.request.Sampling.RepetitionPenalty = r.above(v, 10) },
	"min_tokens":         func(r *reading, v value) { r.request.MinTokens = int(r.integer(v, 0, maxOutput)) },
	"ignore_eos":         func(r *reading, v value) { r.request.IgnoreEOS = r.flag(v) },
	"stop_token_ids":     func(r *reading, v value) { r.request.StopTokens = r.tokens(v, MaxStopTokens) },
	"allowed_token_ids": func(r *reading, v value) {
		if r.request.AllowedTokens = r.tokens(v, MaxAllowed); r.fault == nil && len(r.request.AllowedTokens) == 0 {
			r.fail(v.path, "invalid_value", "%s is empty: no token could be drawn", v.path)
		}
	},
	"include_stop_str_in_output": func(r *reading, v value) { r.request.KeepStop = r.flag(v) },
	"prompt_logprobs":            (*reading).promptLogprobs,
	"return_token_ids":           func(r *reading, v value) { r.ReturnTokenIDs = r.flag(v) },
	"cache_salt":                 func(r *reading, v value) { r.CacheSalt = r.label(v) },
	"priority": func(r *reading, v value) {
		r.request.Priority = int32(r.integer(v, math.MinInt32, math.MaxInt32))
	},
	"regex":              (*reading).regex,
	"guided_regex":       (*reading).regex,
	"guided_json":        (*reading).guidedJSON,
	"guided_choice":      (*reading).choice,
	"structured_outputs": (*reading).structured,

	"metadata":                      passed,
	"service_tier":                  passed,
	"safety_identifier":             passed,
	"prompt_cache_key":              passed,
	"prompt_cache_retention":        passed,
	"prompt_cache_options":          passed,
	"spaces_between_special_tokens": passed,
}

// own are fields of the object "coppice" alone.
var own = map[string]setter{
	"timeout":       func(r *reading, v value) { r.request.Timeout = r.seconds(v) },
	"queue_timeout": func(r *reading, v value) { r.request.QueueTimeout = r.seconds(v) },
	"public_tokens": func(r *reading, v value) { r.request.PublicTokens = int(r.integer(v, 0, maxOutput)) },
	"class":         func(r *reading, v value) { r.request.Class = r.label(v) },
}

// top is the table of what is only at the top: the one extension that holds others, which
// refers to them, so it is none of them, and what is said to routers, see [Hints].
var top = map[string]setter{
	"nvext":   passed,
	"coppice": func(r *reading, v value) { r.fields(v, "an object", own, extensions) },
}

// seconds is at least a nanosecond: 0 would be no limit.
func (d *decoder) seconds(v value) time.Duration {
	return max(time.Duration(float64(d.above(v, maxSeconds))*float64(time.Second)), 1)
}

// promptLogprobs is the number of most likely tokens to report beside each prompt token.
func (r *reading) promptLogprobs(v value) {
	if v.raw[0] == 't' || v.raw[0] == 'f' {
		r.PromptLogprobs = r.flag(v)
		return
	}
	r.PromptTop = int(r.integer(v, 0, engine.MaxTopLogprobs))
	r.PromptLogprobs = true
}
