package openai

import (
	"github.com/coppice-llm/coppice/conversation"
	"github.com/coppice-llm/coppice/internal/bail"
	"github.com/coppice-llm/coppice/internal/jsonbody"
)

// defaultCompletionTokens is OpenAI's default of max_tokens for completions.
const defaultCompletionTokens = 16

var completionFields = map[string]setter{
	"prompt":             func(r *reading, v value) { r.completion.Prompts = r.promptList(v) },
	"echo":               func(r *reading, v value) { r.completion.Echo = r.Flag(v) },
	"add_special_tokens": special(true, "a text always gets the special tokens that the model expects; give token ids"),
	"best_of":            func(r *reading, v value) { r.bestOf = int(r.Integer(v, 1, maxN)) },
	"logprobs":           (*reading).completionLogprobs,
	"suffix": func(r *reading, v value) {
		if r.Text(v) != "" {
			r.Fail(v, conversation.Unsupported, "suffix is not supported: %s", refused["suffix"].why)
		}
	},
}

// DecodeCompletion decodes the body of a request to /v1/completions. The error is an *conversation.Error. The
// result does not refer to body.
func DecodeCompletion(body []byte, o Options) (_ *Completion, err error) {
	defer conversation.OfFault(&err)
	defer bail.Recover(&err)
	v := jsonbody.Parse(body)
	c := &Completion{}
	r := newReading(&c.Params, &c.Shown, o)
	r.completion = c
	r.MaxTokens = defaultCompletionTokens
	r.within("", v, completionFields, shared, extensions, inert, top)
	if c.Prompts == nil {
		r.Missing(param("prompt"))
	}
	if c.Echo && c.Logprobs && c.Stream {
		r.Fail(param("echo"), conversation.Unsupported, "echo with logprobs is not streamed: leave stream out")
	}
	r.finish()
	return c, nil
}

// WantsPromptTokens reports whether the answer shows prompt tokens, or counts them before they
// have been computed.
func (c *Completion) WantsPromptTokens() bool {
	return c.ReturnTokenIDs || c.PromptLogprobs || c.ContinuousUsage || c.EchoesLogprobs()
}

// EchoesLogprobs reports whether the answer has log-probabilities of the prompts.
func (c *Completion) EchoesLogprobs() bool { return c.Echo && c.Logprobs }

// WantsPromptTokens reports the same as [Completion.WantsPromptTokens].
func (c *Chat) WantsPromptTokens() bool {
	return c.ReturnTokenIDs || c.PromptLogprobs || c.ContinuousUsage
}

// completionLogprobs reads logprobs of a completion: the number of alternatives per position. 0
// still asks for the log-probabilities of the tokens themselves.
func (r *reading) completionLogprobs(v value) {
	r.TopLogprobs = int(r.Integer(v, 0, MaxTopLogprobs))
	r.Logprobs = true
}
