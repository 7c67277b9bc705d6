package openai

import (
	"maps"
	"math"
	"time"

	"github.com/coppice-llm/coppice/conversation"
	"github.com/coppice-llm/coppice/internal/jsonbody"
)

// extensions are fields that OpenAI's API does not have, under the names of vLLM (SGLang for
// regex), at the top level or in the object "coppice".
var extensions = map[string]setter{
	"top_k": func(r *reading, v value) { // -1 also means off
		r.Sampling.TopK = int32(max(r.Integer(v, -1, math.MaxInt32), 0))
	},
	"min_p":              func(r *reading, v value) { r.Sampling.MinP = r.Number(v, 0, 1) },
	"repetition_penalty": func(r *reading, v value) { r.Sampling.RepetitionPenalty = r.Above(v, 10) },
	"min_tokens":         func(r *reading, v value) { r.MinTokens = int(r.Integer(v, 0, maxOutput)) },
	"ignore_eos":         func(r *reading, v value) { r.IgnoreEOS = r.Flag(v) },
	"stop_token_ids":     func(r *reading, v value) { r.StopTokens = r.tokens(v, maxStopTokens) },
	"allowed_token_ids": func(r *reading, v value) {
		if r.AllowedTokens = r.tokens(v, maxAllowed); len(r.AllowedTokens) == 0 {
			r.Fail(v, "invalid_value", "%s is empty, so no token could be sampled", v)
		}
	},
	"include_stop_str_in_output": func(r *reading, v value) { r.KeepStop = r.Flag(v) },
	"prompt_logprobs":            (*reading).promptLogprobs,
	"return_token_ids":           func(r *reading, v value) { r.ReturnTokenIDs = r.Flag(v) },
	"cache_salt":                 (*reading).salt,
	"prompt_cache_key":           func(r *reading, v value) { r.Session = r.Label(v, "") },
	"session_id": func(r *reading, v value) { // prompt_cache_key comes first, wherever it stands
		if v.Raw[0] == '"' && r.Session == "" {
			r.Session = r.Label(v, "")
		}
	},
	"priority": func(r *reading, v value) {
		r.Priority = int32(r.Integer(v, math.MinInt32, math.MaxInt32))
	},
	"regex":              (*reading).regex,
	"guided_regex":       (*reading).regex,
	"guided_json":        (*reading).guidedJSON,
	"guided_choice":      (*reading).choice,
	"structured_outputs": (*reading).structured,
}

// inert are further fields without influence on the output.
var inert = map[string]setter{
	"metadata":                      passed,
	"service_tier":                  passed,
	"safety_identifier":             passed,
	"prompt_cache_retention":        passed,
	"prompt_cache_options":          passed,
	"spaces_between_special_tokens": passed,
}

// own are fields of the object "coppice" only.
var own = map[string]setter{
	"timeout":       func(r *reading, v value) { r.Timeout = r.seconds(v) },
	"queue_timeout": func(r *reading, v value) { r.QueueTimeout = r.seconds(v) },
	"public_tokens": func(r *reading, v value) { r.PublicTokens = int(r.Integer(v, 0, maxOutput)) },
	"speculate": func(r *reading, v value) {
		switch {
		case v.Raw[0] != '"':
			r.Speculate = int16(r.Integer(v, 1, maxSpeculate))
		case r.OneOf(v, "auto", "off") == "off":
			r.Speculate = -1
		default:
			r.Speculate = -2
		}
	},
	"class": func(r *reading, v value) { r.Class = r.Label(v, "") },
}

// elsewhere are fields that requests to other APIs may have too. What has no place in their answers is left out.
var elsewhere = func() map[string]setter {
	all := maps.Clone(extensions)
	for _, name := range []string{"seed", "stop", "presence_penalty", "frequency_penalty", "logit_bias"} {
		all[name] = shared[name]
	}
	for _, name := range []string{"prompt_logprobs", "return_token_ids", "include_stop_str_in_output"} {
		delete(all, name)
	}
	return all
}()

// Extension reads the member f of the body of a request to another API into p, if it is one of this package's extensions or of
// OpenAI's sampling fields, such as top_k, seed or the object "coppice". It reports whether it is one. d reads the body.
func Extension(d *jsonbody.Decoder, f jsonbody.Field, p *conversation.Params) bool {
	set := elsewhere[string(f.Name)]
	r := &reading{decoder: decoder{Decoder: *d, most: maxPromptTokens}, Params: p, Shown: &Shown{}}
	switch {
	case string(f.Name) == "coppice":
		r.within("coppice.", f.Value, own, elsewhere, inert)
	case set != nil:
		set(r, f.Value)
	default:
		return false
	}
	*d = r.Decoder
	return true
}

// top holds the fields that are allowed at the top level only: the object "coppice", which
// contains the extensions and so can't be an extension itself, and hints for routers, see [Hints].
var top = map[string]setter{
	"nvext":   passed,
	"coppice": func(r *reading, v value) { r.within("coppice.", v, own, extensions, inert) },
}

// salt reads cache_salt.
func (r *reading) salt(v value) {
	if s := r.Label(v, r.last.salt); v.Raw[0] == '"' {
		r.CacheSalt = s
	}
}

// seconds reads a duration of at least a nanosecond, because 0 would mean no limit.
func (d *decoder) seconds(v value) time.Duration {
	return max(time.Duration(float64(d.Above(v, maxSeconds))*float64(time.Second)), 1)
}

// promptLogprobs reads the number of most likely tokens to report for each prompt token.
func (r *reading) promptLogprobs(v value) {
	if v.Raw[0] == 't' || v.Raw[0] == 'f' {
		r.PromptLogprobs = r.Flag(v)
		return
	}
	r.PromptTop = int(r.Integer(v, 0, MaxTopLogprobs))
	r.PromptLogprobs = true
}
