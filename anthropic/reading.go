package anthropic

import (
	"encoding/json"
	"math"
	"slices"
	"time"

	"github.com/coppice-llm/coppice/conversation"
	"github.com/coppice-llm/coppice/internal/jsonbody"
	"github.com/coppice-llm/coppice/openai"
	"github.com/coppice-llm/coppice/tokenizer/chat"
)

type (
	value = jsonbody.Value
	param = jsonbody.Param
)

// Limits of the fields of a request. A node may have lower ones.
const (
	maxMessages = 8192
	maxBlocks   = 1024 // per message, and of the system prompt
	maxTools    = 512
	maxStops    = 16
	// maxStopBytes covers all stop sequences together: the automaton that finds them takes up to 512 times as
	// much memory.
	maxStopBytes = 1024
	maxOutput    = 1 << 30
)

// reading is the state of decoding one request.
type reading struct {
	jsonbody.Decoder
	*Request
	keepNonces bool

	system []chat.Message // at most one
	turns  []chat.Message
	marks  []mark
	tools  []conversation.Tool
	wanted conversation.Choice
}

// Values of mark.message for a tool, and for the last message.
const anyTool, lastMessage = -1, math.MaxInt

// mark is a block with cache_control. The message is an index in system or turns.
type mark struct {
	system         bool
	message, parts int // the block is the last one of this number of parts
	ttl            time.Duration
	at             value
}

func newReading(o Options) *reading {
	r := &reading{Request: &Request{}, keepNonces: o.KeepNonces}
	r.Params = conversation.NewParams(o.Sampling, "max_tokens", "messages")
	r.wanted.Form = o.CallForm
	r.From.Reduced = true // as the API does: clients ask for tens of thousands of tokens, whatever the model's context is
	r.Ignores = func(name string) bool { return o.IgnoreUnknown || slices.Contains(harmless, name) }
	return r
}

// ofPrompt are the fields that the prompt depends on.
var ofPrompt = map[string]bool{"messages": true, "system": true, "tools": true, "tool_choice": true, "thinking": true, "output_config": true}

// fields are the fields of a request.
var fields = map[string]func(r *reading, v value){
	"model":  func(r *reading, v value) { r.Model = r.Text(v) },
	"stream": func(r *reading, v value) { r.Stream = r.Flag(v) },
	"max_tokens": func(r *reading, v value) {
		n, ok := r.Whole(v, 0, maxOutput)
		if r.NoOutput = ok && n == 0; ok { // 0 computes the prompt alone, so that its prefix is cached
			r.MaxTokens = max(int(n), 1)
		}
	},
	"messages":       (*reading).messages,
	"system":         (*reading).systemPrompt,
	"tools":          (*reading).toolList,
	"tool_choice":    (*reading).toolChoice,
	"stop_sequences": (*reading).stops,
	"temperature":    func(r *reading, v value) { r.Sampling.Temperature = r.Number(v, 0, 1) },
	"top_p":          func(r *reading, v value) { r.Sampling.TopP = r.Above(v, 1) },
	"top_k":          func(r *reading, v value) { r.Sampling.TopK = int32(r.Integer(v, 0, math.MaxInt32)) },
	"metadata": func(r *reading, v value) {
		for _, f := range r.Object(v, "an object") {
			if string(f.Name) == "user_id" {
				r.User = r.Label(f.Value, "")
			} else if !r.Lenient {
				r.Ignore("metadata." + jsonbody.Clip(string(f.Name)))
			}
		}
	},
	"thinking":      (*reading).thinking,
	"output_config": (*reading).outputConfig,
	"output_format": func(r *reading, v value) { r.format(v) },
	"cache_control": func(r *reading, v value) { // of the whole request: the last block
		if ttl, ok := r.ttl(v); ok {
			r.marks = append(r.marks, mark{message: lastMessage, ttl: ttl, at: v})
		}
	},
	"coppice":      (*reading).extensions,
	"service_tier": func(r *reading, v value) { r.Text(v) },
}

// refused are fields of the API that this server does not support, unless they are empty.
var refused = map[string]string{
	"container":   "the server runs no code",
	"mcp_servers": "the server calls no tools; give them as tools, and run what the model calls",
}

// harmless are fields without influence on the output, at any level. Their values are not checked.
var harmless = []string{
	"allowed_callers",       // of a tool: whether code that the server runs may call it
	"budget_tokens",         // of thinking: a model here has no such limit, besides max_tokens
	"caller",                // of a call that is sent back
	"citations",             // of a text that is sent back
	"container",             // of an answer that is sent back
	"context_management",    // edits that shorten long conversations
	"defer_loading",         // of a tool: whether a search shows it to the model
	"diagnostics",           // what to measure
	"display",               // of thinking: whether it is shown
	"eager_input_streaming", // of a tool: arguments are always streamed as they come
	"id",                    // of an answer that is sent back
	"inference_geo",         // where to compute
	"input_examples",        // of a tool
	"max_characters",        // of a text editor: how much of a file its results show
	"model",                 // of an answer that is sent back
	"scope",                 // of cache_control
	"signature",             // of reasoning that is sent back
	"speed",                 // a tariff
	"stop_details",          // of an answer that is sent back
	"stop_reason",           // of an answer that is sent back
	"stop_sequence",         // of an answer that is sent back
	"strict",                // of a tool: a required call always follows the schema
	"task_budget",           // of output_config
	"toolset_name",          // of a call or a result that is sent back
	"type",                  // of an answer that is sent back
	"usage",                 // of an answer that is sent back
	"user_profile_id",       // on whose behalf
	"workspace_id",          // which account pays
}

// stops reads stop_sequences.
func (r *reading) stops(v value) {
	if v.Raw[0] != '[' {
		r.Want(v, "an array of strings")
		return
	}
	r.StopStrings = r.Texts(v, maxStops)
	bytes := 0
	for i, s := range r.StopStrings {
		if bytes += len(s); s == "" {
			r.Fail(v.Index(i), "invalid_value", "%s is empty: the output would end before it began", v.Index(i))
		}
	}
	if bytes > maxStopBytes {
		r.Fail(v, "invalid_value", "%s has %d bytes, want at most %d", v, bytes, maxStopBytes)
	}
}

// extensions reads this server's own object, which package openai describes.
func (r *reading) extensions(v value) {
	openai.Extension(&r.Decoder, jsonbody.Field{Name: []byte("coppice"), Value: v}, &r.Params)
}

// variable sets a variable of the template.
func (r *reading) variable(name, raw string) {
	if r.Options.Variables == nil {
		r.Options.Variables = map[string]json.RawMessage{}
	}
	r.Options.Variables[name] = json.RawMessage(raw)
}

// thinking reads {"type": "enabled", "adaptive", "between_tools" or "disabled"} for templates that can switch reasoning off. Without the
// field the template decides.
func (r *reading) thinking(v value) {
	kind := ""
	r.Fields(v, "thinking.", map[string]func(value){
		"type": func(v value) { kind = r.OneOf(v, "enabled", "adaptive", "between_tools", "disabled") },
		"budget_tokens": func(v value) {
			if r.Integer(v, 0, maxOutput); !r.Lenient {
				r.Ignore("thinking.budget_tokens")
			}
		},
	})
	switch kind {
	case "":
		if v.Raw[0] == '{' {
			r.Missing(v.At("type"))
		}
	case "disabled":
		r.variable("enable_thinking", "false")
	default:
		r.variable("enable_thinking", "true")
	}
}

// outputConfig reads {"effort", "format"}.
func (r *reading) outputConfig(v value) {
	r.Fields(v, "output_config.", map[string]func(value){
		"effort": func(v value) { // templates that read it know three
			effort := r.OneOf(v, "low", "medium", "high", "xhigh", "max")
			if effort == "xhigh" || effort == "max" {
				effort = "high"
			}
			if effort != "" {
				r.variable("reasoning_effort", `"`+effort+`"`)
			}
		},
		"format": r.format,
	})
}

// format reads {"type": "json_schema", "schema": …}.
func (r *reading) format(v value) {
	if r.Lenient {
		return // it does not change the prompt
	}
	if r.From.Format != "" {
		r.Fail(v, "invalid_value", "%s and %s both constrain the output, want one", r.From.Format, v)
	}
	var kind string
	var schema value
	text := func(v value) { r.Text(v) }
	r.Fields(v, "output_format.", map[string]func(value){
		"type": func(v value) { kind = r.OneOf(v, "json_schema") }, "schema": func(v value) { schema = v }, "name": text, "description": text,
	})
	switch {
	case kind == "":
		r.Missing(v.At("type"))
	case schema.Raw == nil:
		r.Missing(v.At("schema"))
	case schema.Raw[0] != '{' && schema.Raw[0] != 't' && schema.Raw[0] != 'f':
		r.Want(schema, "a JSON schema, which is an object")
	}
	r.From.Format, r.From.Answer = v.String(), true
	r.Format = conversation.SchemaFormat(conversation.FillWrapper(schema.Raw))
}

// ttl reads cache_control: {"type": "ephemeral", "ttl": "5m" or "1h"}.
func (r *reading) ttl(v value) (d time.Duration, ok bool) {
	d = 5 * time.Minute
	r.Fields(v, "cache_control.", map[string]func(value){
		"type": func(v value) { ok = r.OneOf(v, "ephemeral") != "" },
		"ttl": func(v value) {
			if r.OneOf(v, "5m", "1h") == "1h" {
				d = time.Hour
			}
		},
	})
	if !ok && v.Raw[0] == '{' {
		r.Missing(v.At("type"))
	}
	return d, ok
}
