package responses

import (
	"bytes"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/coppice-llm/coppice/conversation"
	"github.com/coppice-llm/coppice/internal/bail"
	"github.com/coppice-llm/coppice/internal/jsonbody"
	"github.com/coppice-llm/coppice/openai"
	"github.com/coppice-llm/coppice/tokenizer/chat"
)

// Limits of the fields of a request. A node may have lower ones.
const (
	maxOutput   = 1 << 30 // max_output_tokens
	maxMetadata = 16      // pairs
	maxIncludes = 32
	maxSession  = 256 // bytes of prompt_cache_key, as the scheduler's names of sessions
)

// Options configure the decoding of requests.
type Options struct {
	openai.Options
	// Find returns the stored response of the caller with this id. Its error is a *conversation.Error, [NotFound] if there is
	// none. nil: nothing is stored.
	Find func(id string) (*Stored, error)
}

// Ask is a request to POST /v1/responses.
type Ask struct {
	conversation.Turn
	Store    bool
	Previous string // previous_response_id

	items []item
	shown shown
}

// shown are fields that the response repeats, as raw JSON; nil if absent.
type shown struct {
	instructions, metadata, tools, choice, format, verbosity, effort, cacheKey, retention, safety, user []byte
	toolCalls                                                                                           int64 // max_tool_calls; 0 if absent
	summary                                                                                             string
	truncation                                                                                          string
	parallel                                                                                            bool
}

type (
	value = jsonbody.Value
	field = jsonbody.Field
)

// reading is the state of decoding one request.
type reading struct {
	jsonbody.Decoder
	ask    *Ask
	find   func(id string) (*Stored, error)
	thread thread

	late    struct{ instructions, previous, input value } // read last, in this order
	names   string
	tools   []conversation.Tool
	choice  conversation.Choice
	allowed allowed
	keeps   bool // the items that are read are the request's own
}

// allowed are the tools that tool_choice allows.
type allowed struct {
	names []string // nil: all
	at    value
}

// setter reads one field.
type setter func(r *reading, v value)

var fields = map[string]setter{
	"model":                func(r *reading, v value) { r.ask.Model = r.Text(v) },
	"input":                func(r *reading, v value) { r.late.input = v },
	"instructions":         func(r *reading, v value) { r.late.instructions, r.ask.shown.instructions = v, r.repeated(v) },
	"previous_response_id": func(r *reading, v value) { r.late.previous = v },
	"tools":                (*reading).readTools,
	"tool_choice":          (*reading).toolChoice,
	"parallel_tool_calls": func(r *reading, v value) {
		parallel := r.Flag(v)
		r.choice.Parallel, r.ask.shown.parallel = &parallel, parallel
	},
	"max_output_tokens": func(r *reading, v value) { r.ask.MaxTokens = int(r.Integer(v, 1, maxOutput)) },
	"max_tool_calls":    func(r *reading, v value) { r.ask.shown.toolCalls = r.Integer(v, 1, maxOutput) }, // of tools that run here: there are none
	"temperature":       func(r *reading, v value) { r.ask.Sampling.Temperature = r.Number(v, 0, 2) },
	"top_p":             func(r *reading, v value) { r.ask.Sampling.TopP = r.Above(v, 1) },
	"top_logprobs": func(r *reading, v value) {
		r.ask.TopLogprobs = int(r.Integer(v, 0, openai.MaxTopLogprobs))
		r.ask.Logprobs = r.ask.Logprobs || r.ask.TopLogprobs > 0
	},
	"include":   (*reading).include,
	"text":      (*reading).text,
	"reasoning": (*reading).reasoning,
	"truncation": func(r *reading, v value) {
		if r.ask.shown.truncation = r.OneOf(v, "disabled", "auto"); r.ask.shown.truncation == "auto" {
			r.Ignore("truncation") // conversations are never shortened
		}
	},
	"metadata":               (*reading).metadata,
	"user":                   func(r *reading, v value) { r.ask.User, r.ask.shown.user = r.Text(v), r.repeated(v) },
	"safety_identifier":      func(r *reading, v value) { r.Text(v); r.ask.shown.safety = r.repeated(v) },
	"prompt_cache_key":       (*reading).cacheKey,
	"prompt_cache_retention": func(r *reading, v value) { r.Text(v); r.ask.shown.retention = r.repeated(v) },
	"prompt_cache_options":   func(*reading, value) {},
	"service_tier":           func(r *reading, v value) { r.Text(v) },
	"store":                  func(r *reading, v value) { r.ask.Store = r.Flag(v) },
	"stream":                 func(r *reading, v value) { r.ask.Stream = r.Flag(v) },
	"stream_options": func(r *reading, v value) {
		r.Fields(v, "stream_options.", map[string]func(value){
			"include_obfuscation": func(v value) { r.Flag(v) }, // padding against traffic analysis; not implemented
			"include_usage":       func(v value) { r.Flag(v) }, // always
		})
	},
}

// refused are fields that are refused by name, unless their value is the text here, which asks for nothing.
var refused = map[string]struct{ unless, why string }{
	"background":         {"false", "responses are made while the client waits"},
	"context_management": {"[]", "conversations are never shortened"},
	"conversation":       {"", "give previous_response_id, or the items"},
	"moderation":         {"", "nothing is moderated"},
	"prompt":             {"", "there are no stored prompts: give instructions and input"},
}

// Decode decodes the body of a request to POST /v1/responses. The error is a *conversation.Error. The result does not refer to
// body.
func Decode(body []byte, o Options) (_ *Ask, err error) {
	defer conversation.OfFault(&err)
	defer bail.Recover(&err)
	v := jsonbody.Parse(slices.Clone(body)) // a copy: tools and arguments go to the template as raw JSON
	a := &Ask{Store: true, shown: shown{parallel: true}}
	a.Params = conversation.NewParams(o.Sampling, "max_output_tokens", "input")
	a.Options.AddGenerationPrompt = true
	r := &reading{Decoder: jsonbody.Decoder{Ignores: o.UnknownFields.Ignores}, ask: a, find: o.Find}
	r.choice.Form = o.CallForm
	r.body(v)
	r.finish()
	return a, nil
}

// body reads the members of the body.
func (r *reading) body(v value) {
	for _, f := range r.Object(v, "an object") {
		r.member(f)
	}
	r.conversation()
}

// conversation reads the parts of the conversation in their order.
func (r *reading) conversation() {
	r.OfPrompt = true
	if v := r.late.instructions; v.Raw != nil {
		if text := r.Text(v); text != "" {
			r.thread.add(chat.Message{Role: "system", Content: text})
		}
	}
	if r.late.previous.Raw != nil {
		r.history(r.late.previous)
	}
	if r.keeps = true; r.late.input.Raw != nil {
		r.readInput(r.late.input)
	}
	r.OfPrompt, r.ask.Messages = false, r.thread.all
}

func (r *reading) member(f field) {
	if set := fields[string(f.Name)]; set != nil {
		set(r, f.Value)
		return
	}
	if no, ok := refused[string(f.Name)]; ok {
		if string(f.Raw) != no.unless {
			r.Fail(f, conversation.Unsupported, "%s is not supported: %s", f, no.why)
		}
		return
	}
	if !openai.Extension(&r.Decoder, f, &r.ask.Params) {
		r.Unknown("", f)
	}
}

// finish checks conditions on several fields, and gives the tools to the output.
func (r *reading) finish() {
	a := r.ask
	if len(a.Messages) == 0 {
		r.Missing(jsonbody.Param("input"))
	}
	offered := r.tools
	if r.allowed.names != nil {
		offered = nil
		for _, name := range r.allowed.names {
			i := slices.IndexFunc(r.tools, func(t conversation.Tool) bool { return t.Name == name })
			if i < 0 {
				r.Fail(r.allowed.at, "invalid_value", "%s has the tool %q, but no tool has that name", r.allowed.at, jsonbody.Clip(name))
			}
			offered = append(offered, r.tools[i])
		}
	}
	if err := a.Offer(offered, r.choice); err != nil {
		bail.Out(err)
	}
	a.Ignored = r.Skipped
}

// cacheKey reads prompt_cache_key, which names the session.
func (r *reading) cacheKey(v value) {
	s := r.Text(v)
	if len(s) > maxSession {
		r.Fail(v, "invalid_value", "%s has %d bytes, want at most %d: give a hash of it", v, len(s), maxSession)
	}
	r.ask.Session, r.ask.shown.cacheKey = s, r.repeated(v)
}

// include reads the list of parts that the answer should have in addition.
func (r *reading) include(v value) {
	for _, s := range r.Texts(v, maxIncludes) {
		switch s {
		case "message.output_text.logprobs":
			r.ask.Logprobs = true
		case "reasoning.encrypted_content": // reasoning is sent as it is, and taken back
		default: // of tools that run in the server: there are none
			r.Ignore("include")
		}
	}
}

// text reads {"format", "verbosity"}.
func (r *reading) text(v value) {
	r.Fields(v, "text.", map[string]func(value){
		"format":    r.format,
		"verbosity": func(v value) { r.Text(v); r.ask.shown.verbosity = r.repeated(v); r.Ignore("text.verbosity") }, // models here have no such setting
	})
}

// format reads {"type": "text"}, {"type": "json_object"} or {"type": "json_schema", "schema": …}. A schema is always enforced,
// whatever strict says.
func (r *reading) format(v value) {
	var kind string
	var schema value
	text := func(v value) { r.Text(v) }
	r.Fields(v, "text.format.", map[string]func(value){
		"type": func(v value) { kind = r.OneOf(v, "text", "json_object", "json_schema") },
		"name": text, "description": text,
		"strict": func(v value) { r.Flag(v) },
		"schema": func(v value) { r.Object(v, "a JSON schema, which is an object"); schema = v },
	})
	r.ask.shown.format = r.repeated(v)
	a := r.ask
	switch {
	case kind == "":
		r.Missing(v.At("type"))
	case kind == "text":
		return
	case a.From.Format != "":
		r.Fail(v, "invalid_value", "%s and %s both constrain the output, want one", a.From.Format, v)
	case kind == "json_object":
		a.Format = conversation.Format{JSON: true}
	case schema.Raw == nil:
		r.Missing(v.At("schema"))
	default:
		a.Format = conversation.SchemaFormat(conversation.FillWrapper(schema.Raw))
	}
	a.From.Format, a.From.Answer = "text.format", true
}

// reasoning reads {"effort", "summary"}. Some templates read the effort.
func (r *reading) reasoning(v value) {
	s := &r.ask.shown
	summary := func(v value) { s.summary = r.OneOf(v, "auto", "concise", "detailed") }
	r.Fields(v, "reasoning.", map[string]func(value){
		"effort": func(v value) {
			if r.IsText(v) {
				r.ask.Options.Variables, s.effort = map[string]json.RawMessage{"reasoning_effort": v.Raw}, r.repeated(v)
			}
		},
		"summary":          summary,
		"generate_summary": summary, // its older name
		"context":          func(value) { r.Ignore("reasoning.context") },
		"mode":             func(value) { r.Ignore("reasoning.mode") },
	})
}

// metadata reads up to 16 texts by name, which the response repeats.
func (r *reading) metadata(v value) {
	all := r.Object(v, "an object of texts")
	if len(all) > maxMetadata {
		r.Fail(v, "invalid_value", "%s has %d pairs, want at most %d", v, len(all), maxMetadata)
	}
	for _, f := range all {
		if s := r.Text(f.Value); utf8.RuneCountInString(s) > 512 {
			r.Fail(f, "invalid_value", "%s has over 512 characters", f)
		}
	}
	r.ask.shown.metadata = r.repeated(v)
}

// history reads the conversation of a stored response and of those before it, without their instructions.
func (r *reading) history(v value) {
	id := r.Text(v)
	if r.ask.Previous, r.names = id, id; r.Lenient {
		r.Fail(v, "", "%s is given: the worker has the conversation before it", v)
		return
	}
	var chain []*Stored
	for id != "" {
		s := r.stored(v, id)
		chain = append(chain, s)
		if r.ask.Session == "" {
			r.ask.Session = s.Session
		}
		if s.Previous == "" && r.ask.Session == "" {
			r.ask.Session = id // the conversation has the name of its first response
		}
		id = s.Previous
	}
	for _, s := range slices.Backward(chain) {
		r.readItems(value{Raw: s.Input, Top: s.Input})
		out := s.output()
		r.readItems(value{Raw: out, Top: s.Response})
	}
}

// stored returns the stored response with this id, which v asks for.
func (r *reading) stored(v value, id string) *Stored {
	if r.find == nil {
		r.Fail(v, conversation.Unsupported, "%s is not supported: nothing is stored", v)
	}
	s, err := r.find(id)
	if err != nil {
		if e, ok := err.(*conversation.Error); ok && e.Status == http.StatusNotFound {
			err = PreviousNotFound(id).At(v.String())
		}
		bail.Out(err)
	}
	return s
}

// repeated returns v in the form in which a response repeats it: on one line, since an event is one, and as sound UTF-8. A proxy
// needs none of it.
func (r *reading) repeated(v value) []byte {
	if r.Lenient {
		return nil
	}
	var b bytes.Buffer
	if err := json.Compact(&b, v.Raw); err != nil {
		panic("responses: a sound text can't be compacted: " + err.Error())
	}
	return bytes.ToValidUTF8(b.Bytes(), []byte("�"))
}

// optional returns raw, or null if it is absent.
func optional(raw []byte) string {
	if raw == nil {
		return "null"
	}
	return string(raw)
}

// number returns n as JSON, or null for 0.
func number(n int64) string {
	if n == 0 {
		return "null"
	}
	return strconv.FormatInt(n, 10)
}
