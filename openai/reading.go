package openai

import (
	"github.com/coppice-llm/coppice/conversation"
	"github.com/coppice-llm/coppice/internal/jsonbody"
)

// reading is the state of decoding one request.
type reading struct {
	decoder
	*conversation.Params
	*Shown
	completion *Completion // either completion or chat is set
	chat       *Chat
	routing    routing                            // of a proxy
	last       struct{ model, user, salt string } // of the previous request: often equal, so their memory is reused

	bestOf        int
	newer         int // max_completion_tokens, which takes precedence over max_tokens
	newerNone     bool
	streamOptions bool
	toolList      []conversation.Tool
	wanted        conversation.Choice
	top           place // position of top_logprobs, if given
}

// routing holds the fields that only a proxy reads.
type routing struct {
	hints          Hints
	top, coppice   string // priority at the top level, and in "coppice"
	special, marks bool   // value of add_special_tokens; it is given
	truncate       int    // truncate_prompt_tokens, 0 for none
	keepFirst      bool   // truncation_side is "right"
}

// setter decodes one field into r.
type setter func(r *reading, v value)

// newReading sets p to the parameters of a request without any, with the sampling defaults of o. It returns a reading that
// decodes into p and shown.
func newReading(p *conversation.Params, shown *Shown, o Options) *reading {
	*p = conversation.NewParams(o.Sampling, "max_tokens", "prompt")
	return &reading{Params: p, Shown: shown, decoder: *newDecoder(o.UnknownFields)}
}

// within reads the members of the object v with the setters in tables; the first table that has a
// member's name counts. under is the path of v: "coppice.", or "" for the body. Members in no
// table are refused or ignored.
func (r *reading) within(under string, v value, tables ...map[string]setter) {
	r.Under = under
	for _, f := range r.Object(v, "an object") {
		if set := find(f.Name, tables...); set != nil {
			set(r, f.Value)
		} else if no, ok := refused[string(f.Name)]; !ok || under != "" {
			r.Unknown("", f)
		} else if !no.asksNothing(f.Raw) {
			r.Fail(f, conversation.Unsupported, "%s is not supported: %s", f, no.why)
		}
	}
	r.Under = ""
}

// find returns the setter of the field name from the first table that has one, nil if none has.
func find(name []byte, tables ...map[string]setter) setter {
	for _, t := range tables {
		if set := t[string(name)]; set != nil {
			return set
		}
	}
	return nil
}

// refusal says why a field is refused. The field is accepted if its raw value is unless, which
// asks for nothing.
type refusal struct{ unless, why string }

// asksNothing reports whether the value has no effect.
func (n refusal) asksNothing(raw []byte) bool {
	if n.unless == "1" {
		one, ok := jsonbody.Whole(raw)
		return ok && one == 1
	}
	return string(raw) == n.unless
}

// refused are fields of the APIs that this server does not support.
var refused = map[string]refusal{
	"audio":                      {"", "answers are text"},
	"best_of":                    {"", "give n"},
	"bad_words":                  {"[]", "give logit_bias"},
	"chat_template":              {"", "the model's own is used"},
	"echo":                       {"false", "/v1/completions has it"},
	"early_stopping":             {"false", "there is no beam search"},
	"function_call":              {"", "give tool_choice"},
	"functions":                  {"", "give tools"},
	"guided_grammar":             {"", "give a JSON schema or a regular expression"},
	"length_penalty":             {"1", "there is no beam search"},
	"include_reasoning":          {"true", "reasoning is separated and included"},
	"logits_processors":          {"[]", "give logit_bias"},
	"mm_processor_kwargs":        {"", "prompts are text"},
	"no_stop_trim":               {"false", "give include_stop_str_in_output"},
	"prompt_embeds":              {"", "give text or token ids"},
	"return_hidden_states":       {"false", "answers are text"},
	"return_tokens_as_token_ids": {"false", "give return_token_ids"},
	"separate_reasoning":         {"true", "reasoning is always separated"},
	"skip_special_tokens":        {"true", "text never contains special tokens; give return_token_ids"},
	"store":                      {"false", "nothing is stored"},
	"stream_reasoning":           {"true", "reasoning is streamed"},
	"suffix":                     {"", "text is continued, not filled in"},
	"truncate_prompt_tokens":     {"", "prompts are never truncated"},
	"use_beam_search":            {"false", "give n"},
	"web_search_options":         {"", "the server has no access to the web"},
}

// passed is the setter of fields without influence on the output; their values are not checked.
func passed(*reading, value) {}

// special returns the setter of vLLM's add_special_tokens. The server supports only the value
// always; why explains that in the error for the other value.
func special(always bool, why string) setter {
	return func(r *reading, v value) {
		if r.Flag(v) != always {
			r.Fail(v, conversation.Unsupported, "%s is not supported: %s", v, why)
		}
	}
}

// outputLimit reads max_tokens into most. For 0, which the node would take for no limit, it sets
// most to 1 and returns true.
func (r *reading) outputLimit(v value, most *int) (none bool) {
	n, ok := r.Whole(v, 0, maxOutput)
	if ok {
		*most = max(int(n), 1)
	}
	return ok && n == 0
}

// finish checks conditions on several fields.
func (r *reading) finish() {
	q := &r.Generation
	switch {
	case r.bestOf != 0 && r.bestOf != r.N:
		r.Fail(param("best_of"), conversation.Unsupported, "best_of is %d and n %d: samples are not ranked; leave best_of out or make it equal to n", r.bestOf, r.N)
	case q.MaxTokens > 0 && q.MinTokens > q.MaxTokens:
		r.Fail(param("min_tokens"), "invalid_value", "min_tokens is %d, want at most max_tokens, %d", q.MinTokens, q.MaxTokens)
	case r.NoOutput && q.MinTokens > 0:
		r.Fail(param("min_tokens"), "invalid_value", "min_tokens is %d, but max_tokens is 0", q.MinTokens)
	case r.Stream && r.PromptLogprobs:
		r.Fail(param("prompt_logprobs"), conversation.Unsupported, "prompt_logprobs are not streamed: leave stream out")
	}
	if r.streamOptions && !r.Stream {
		r.ContinuousUsage = false
		r.Ignore("stream_options")
	}
	r.Ignored = r.Skipped
	if r.newer > 0 {
		r.From.Limit = "max_completion_tokens"
	}
	if r.chat != nil {
		r.From.Prompt = "messages"
	}
}
