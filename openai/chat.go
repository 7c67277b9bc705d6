package openai

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/coppice-llm/coppice/conversation"
	"github.com/coppice-llm/coppice/internal/bail"
	"github.com/coppice-llm/coppice/internal/jsonbody"
)

var chatFields = map[string]setter{
	"messages":              (*reading).messages,
	"max_completion_tokens": func(r *reading, v value) { r.newerNone = r.outputLimit(v, &r.newer) },
	"logprobs":              func(r *reading, v value) { r.Logprobs = r.Flag(v) },
	"top_logprobs": func(r *reading, v value) {
		r.TopLogprobs, r.top = int(r.Integer(v, 0, MaxTopLogprobs)), v
	},
	"tools":       (*reading).tools,
	"tool_choice": (*reading).toolChoice,
	"parallel_tool_calls": func(r *reading, v value) {
		parallel := r.Flag(v)
		r.wanted.Parallel = &parallel
	},
	"modalities": func(r *reading, v value) {
		for i, m := range r.Texts(v, 8) {
			if at := v.Index(i); m != "text" {
				r.Fail(at, "unsupported_value", "%s is %q: answers are text", at, jsonbody.Clip(m))
			}
		}
	},
	"add_special_tokens":     special(false, "the chat template writes them"),
	"add_generation_prompt":  func(r *reading, v value) { r.Flag(v); r.chat.Options.AddGenerationPrompt = v.Raw[0] != 'f' },
	"continue_final_message": func(r *reading, v value) { r.chat.ContinueFinal = r.Flag(v) },
	"prediction": func(r *reading, v value) { // a text, or parts that together are the text
		given := v.Raw[0] != '{'
		r.Fields(v, "prediction.", map[string]func(value){
			"type": func(v value) { r.OneOf(v, "content") },
			"content": func(v value) {
				text, parts := r.content(v)
				if given = true; parts != nil {
					text = ""
				}
				for _, p := range parts {
					text += p.Text
				}
				r.chat.Prediction = text
			},
		})
		if !given {
			r.Missing(v.At("content"))
		}
	},
	"documents": func(r *reading, v value) { r.chat.Options.Documents = r.Objects(v, 1024) },
	"reasoning_effort": func(r *reading, v value) { // some templates read it
		if r.IsText(v) {
			r.variable(v, "reasoning_effort")
		}
	},
	"chat_template_kwargs": func(r *reading, v value) {
		for _, f := range r.Object(v, "an object") {
			r.variable(f.Value, string(f.Name))
		}
	},
}

// DecodeChat decodes the body of a request to /v1/chat/completions. The error is an *conversation.Error. The
// result does not refer to body.
func DecodeChat(body []byte, o Options) (_ *Chat, err error) {
	defer conversation.OfFault(&err)
	defer bail.Recover(&err)
	v := jsonbody.Parse(slices.Clone(body)) // a copy: tools and arguments go to the template as raw JSON
	c := &Chat{}
	r := newReading(&c.Params, &c.Shown, o)
	r.chat, r.wanted.Form = c, o.CallForm
	c.Options.AddGenerationPrompt = true
	r.within("", v, chatFields, shared, extensions, inert, top)
	r.checkChat()
	r.finish()
	return c, nil
}

// checkChat checks conditions on several fields of a chat. max_completion_tokens takes
// precedence over the older max_tokens.
func (r *reading) checkChat() {
	c := r.chat
	switch {
	case c.Messages == nil:
		r.Missing(param("messages"))
	case r.TopLogprobs > 0 && !c.Logprobs: // 0 is vLLM's default and asks for nothing
		r.Fail(r.top, "invalid_value", "%s requires logprobs to be true", r.top)
	}
	if err := c.Offer(r.toolList, r.wanted); err != nil {
		bail.Out(err)
	}
	if r.newer > 0 {
		c.MaxTokens, c.NoOutput = r.newer, r.newerNone
	}
	r.checkFinal()
}

// checkFinal checks continue_final_message, which keeps the template from opening another turn.
func (r *reading) checkFinal() {
	c := r.chat
	if !c.ContinueFinal {
		return
	}
	if n := len(c.Messages); n > 0 && strings.TrimSpace(c.Messages[n-1].Content) == "" {
		r.Fail(param("continue_final_message"), "invalid_value", "continue_final_message is set, but the last message has no text")
	}
	c.Options.AddGenerationPrompt = false
}

// variable sets the template variable name to v. It refuses the names of fields that the template
// gets in another way.
func (r *reading) variable(v value, name string) {
	switch name {
	case "messages", "tools", "documents", "add_generation_prompt":
		r.Fail(v, "invalid_value", "%s would replace the field %s: give the field", v, name)
		return
	}
	if r.chat.Options.Variables == nil {
		r.chat.Options.Variables = map[string]json.RawMessage{}
	}
	r.chat.Options.Variables[name] = v.Raw
}
