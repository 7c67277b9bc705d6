package openai

import (
	coppice "github.com/coppice-llm/coppice"
	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/kv"
)

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

// defaultCompletionTokens is OpenAI's max_tokens of completions that give none.
const defaultCompletionTokens = 16

var completionFields = map[string]setter{
	"prompt":             func(r *reading, v value) { r.completion.Prompts = r.prompts(v) },
	"echo":               func(r *reading, v value) { r.completion.Echo = r.flag(v) },
	"add_special_tokens": special(true, "a text is put between those that the model expects; give token ids"),
	"best_of":            func(r *reading, v value) { r.bestOf = int(r.integer(v, 1, MaxN)) },
	"logprobs":           (*reading).completionLogprobs,
	"suffix": func(r *reading, v value) {
		if r.text(v) != "" {
			r.fail(v.path, "unsupported_parameter", "suffix is not supported: %s", refused["suffix"].why)
		}
	},
}

// DecodeCompletion reads the body of a request to /v1/completions. The error is an
// *Error. Nothing of body is kept.
func DecodeCompletion(body []byte, o Options) (*Completion, error) {
	v, fault := parse(body)
	if fault != nil {
		return nil, fault
	}
	c := &Completion{}
	r := newReading(&c.Params, o)
	r.completion = c
	r.request.MaxTokens = defaultCompletionTokens
	r.fields(v, "an object", completionFields, shared, extensions, top)
	if r.fault == nil && c.Prompts == nil {
		r.fail("prompt", "missing_required_parameter", "prompt is missing")
	}
	if c.Echo && c.Logprobs {
		if c.Stream {
			r.fail("echo", "unsupported_parameter", "echo with logprobs is not streamed: leave stream out")
		}
		c.request.PromptLogprobs, c.request.PromptTop = true, int32(c.TopLogprobs)
	}
	if err := r.finish(); err != nil {
		return nil, err
	}
	return c, nil
}

// WantsPromptTokens tells that the answer shows tokens of prompts: they have to be
// given to SetPrompt.
func (c *Completion) WantsPromptTokens() bool {
	return c.Params.WantsPromptTokens() || c.Echo && c.Logprobs
}

// WantsPromptTokens tells that the answer shows tokens of prompts, or counts them before
// they have run: they have to be given to SetPrompt.
func (p *Params) WantsPromptTokens() bool {
	return p.ReturnTokenIDs || p.PromptLogprobs || p.ContinuousUsage
}

// Request is what the node is asked for prompt i. The server adds Namespace, Tenant
// and, unless Seeded, Sampling.Seed. Its slices are shared by those of all prompts.
func (c *Completion) Request(i int) coppice.Request {
	req := c.request
	if p := &c.Prompts[i]; p.Tokens != nil {
		req.Tokens = p.Tokens
	} else {
		req.Prompt = p.Text
	}
	return req
}

func (r *reading) completionLogprobs(v value) {
	r.TopLogprobs = int(r.integer(v, 0, engine.MaxTopLogprobs))
	r.Logprobs = true
}

// prompts reads a text, texts, token ids, or arrays of token ids.
func (d *decoder) prompts(v value) []Prompt {
	const what = "a string, an array of strings, an array of token ids, or an array of such arrays"
	switch v.raw[0] {
	case '"':
		return []Prompt{{Text: d.text(v)}}
	case '[':
	default:
		d.want(v, what)
		return nil
	}
	var all []Prompt
	left := MaxPromptTokens
	for i, e := range v.elements() {
		if len(all) == MaxPrompts {
			d.fail(v.path, "invalid_value", "%s has over %d prompts", v.path, MaxPrompts)
		}
		if d.fault != nil {
			return nil
		}
		e.path = v.index(i)
		switch {
		case i > 0 && (e.raw[0] == '"') != (all[0].Tokens == nil):
			d.fail(e.path, "invalid_type", "%s is %s, unlike the prompts before it", e.path, e.kind())
		case e.raw[0] == '"':
			all = append(all, Prompt{Text: d.text(e)})
		case e.raw[0] == '[':
			p := Prompt{Tokens: d.tokens(e, left)}
			left -= len(p.Tokens)
			all = append(all, p)
		case i == 0 && e.kind() == "a number":
			return []Prompt{{Tokens: d.tokens(v, left)}}
		default:
			d.want(e, "a string, a token id or an array of token ids")
		}
	}
	if d.fault == nil && len(all) == 0 {
		d.fail(v.path, "invalid_value", "%s is empty, want at least one prompt", v.path)
	}
	return all
}
