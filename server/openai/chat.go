package openai

import (
	"encoding/json"
	"slices"
	"strings"
	"unicode"

	coppice "github.com/coppice-llm/coppice"
	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/tokenizer/chat"
)

// Chat is a request to /v1/chat/completions.
type Chat struct {
	Params
	Messages []chat.Message // one or more
	// Options are what else the template sees; the server adds Now.
	Options chat.Options
	// ContinueFinal: the answer goes on in the last message; see CutFinal.
	ContinueFinal bool

	calls callMode
}

var chatFields = map[string]setter{
	"messages":              (*reading).messages,
	"max_completion_tokens": func(r *reading, v value) { r.newer, r.newerNone = r.outputLimit(v) },
	"logprobs":              func(r *reading, v value) { r.Logprobs = r.flag(v) },
	"top_logprobs": func(r *reading, v value) {
		r.TopLogprobs, r.top = int(r.integer(v, 0, engine.MaxTopLogprobs)), v.path
	},
	"tools":       (*reading).tools,
	"tool_choice": (*reading).toolChoice,
	"parallel_tool_calls": func(r *reading, v value) {
		parallel := r.flag(v)
		r.wanted.parallel = &parallel
	},
	"modalities": func(r *reading, v value) {
		for i, m := range r.texts(v, 8) {
			if m != "text" {
				r.fail(v.index(i), "unsupported_value", "%s is %q: answers are text", v.index(i), clip(m))
			}
		}
	},
	"add_special_tokens":     special(false, "the chat template writes them"),
	"add_generation_prompt":  func(r *reading, v value) { r.chat.Options.AddGenerationPrompt = r.flag(v) },
	"continue_final_message": func(r *reading, v value) { r.chat.ContinueFinal = r.flag(v) },
	"documents":              func(r *reading, v value) { r.chat.Options.Documents = r.objects(v, 1024) },
	"reasoning_effort": func(r *reading, v value) { // some templates look at it
		r.text(v)
		r.variable("reasoning_effort", v)
	},
	"chat_template_kwargs": func(r *reading, v value) {
		for _, f := range r.object(v, "an object") {
			r.variable(f.name, f.value)
		}
	},
}

// DecodeChat reads the body of a request to /v1/chat/completions. The error is an
// *Error. Nothing of body is kept.
func DecodeChat(body []byte, o Options) (*Chat, error) {
	v, fault := parse(slices.Clone(body)) // tools and arguments go to the template as they are
	if fault != nil {
		return nil, fault
	}
	c := &Chat{}
	r := newReading(&c.Params, o)
	r.chat = c
	c.Options.AddGenerationPrompt = true
	r.fields(v, "an object", chatFields, shared, extensions, top)
	r.checkChat()
	if err := r.finish(); err != nil {
		return nil, err
	}
	return c, nil
}

func (r *reading) checkChat() {
	c := r.chat
	switch {
	case r.fault != nil:
		return
	case c.Messages == nil:
		r.fail("messages", "missing_required_parameter", "messages is missing")
		return
	case r.TopLogprobs > 0 && !c.Logprobs: // 0, vLLM's default, asks for nothing
		r.fail(r.top, "invalid_value", "%s is given without logprobs: set that to true", r.top)
	}
	r.checkTools()
	if r.newer > 0 {
		c.request.MaxTokens, c.NoOutput = r.newer, r.newerNone
	}
	if !c.ContinueFinal {
		return
	}
	last := &c.Messages[len(c.Messages)-1]
	if strings.TrimSpace(last.Content) == "" {
		r.fail("continue_final_message", "invalid_value", "continue_final_message is set, but the last message has no text")
	}
	c.Options.AddGenerationPrompt = false
}

// variable is what a template sees under a name of its own.
func (r *reading) variable(name string, v value) {
	switch name {
	case "messages", "tools", "documents", "add_generation_prompt":
		r.fail(v.path, "invalid_value", "%s would take the place of the field %s: give that", v.path, name)
		return
	}
	if r.chat.Options.Variables == nil {
		r.chat.Options.Variables = map[string]json.RawMessage{}
	}
	r.chat.Options.Variables[name] = v.raw
}

// objects reads an array of JSON objects, which are not looked into.
func (d *decoder) objects(v value, most int) []json.RawMessage {
	if !d.isList(v, "an array of objects") {
		return nil
	}
	out := []json.RawMessage{}
	for i, e := range v.elements() {
		e.path = v.index(i)
		switch {
		case len(out) == most:
			d.fail(v.path, "invalid_value", "%s has over %d objects", v.path, most)
		case e.raw[0] != '{':
			d.want(e, "an object")
		}
		if d.fault != nil {
			return nil
		}
		out = append(out, e.raw)
	}
	return out
}

// CutFinal takes off a rendered conversation what the template writes behind the
// content of the last message, if ContinueFinal asks for that.
//
// Source: continue_final_message of apply_chat_template, Hugging Face transformers.
func (c *Chat) CutFinal(rendered string) (string, error) {
	if !c.ContinueFinal {
		return rendered, nil
	}
	content := c.Messages[len(c.Messages)-1].Content
	trimmed := strings.TrimSpace(content)
	at := strings.LastIndex(rendered, trimmed)
	if at < 0 {
		return "", invalid("continue_final_message", "template_failed", "the chat template does not write the last message as it is, so it can't be continued")
	}
	// Templates may trim the content or not.
	if open := strings.TrimLeftFunc(content, unicode.IsSpace); strings.HasPrefix(rendered[at:], open) {
		return rendered[:at+len(open)], nil
	}
	return rendered[:at+len(trimmed)], nil
}

// Request is what the node is asked, for the conversation as the template rendered
// it. The server adds Namespace, Tenant and, unless Seeded, Sampling.Seed.
func (c *Chat) Request(rendered string) coppice.Request {
	req := c.request
	req.Prompt, req.Rendered = rendered, true
	return req
}
