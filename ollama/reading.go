package ollama

import (
	"encoding/json"
	"math"

	"github.com/coppice-llm/coppice/conversation"
	"github.com/coppice-llm/coppice/internal/jsonbody"
	"github.com/coppice-llm/coppice/kv"
)

type value = jsonbody.Value

// reading is the state of decoding one request.
type reading struct {
	jsonbody.Decoder
	turn   conversation.Turn
	tools  []conversation.Tool
	unload bool

	// Of /api/generate.
	prompt, system string
	raw            bool
	context        []kv.Token
	messages       *value // of /api/chat; nil if absent
	top            *value // top_logprobs; nil if absent
}

// setter decodes one field into r.
type setter func(r *reading, v value)

// Limits of a request. A node may have lower ones.
const (
	maxContext  = 1 << 20 // token ids
	maxOutput   = 1 << 30 // num_predict
	maxTools    = 128
	maxImages   = 128
	maxTopScore = 20 // top_logprobs
)

func newReading(o Options) *reading {
	r := &reading{Decoder: jsonbody.Decoder{Ignores: isHarmless}}
	if o.IgnoreUnknown {
		r.Ignores = func(string) bool { return true }
	}
	r.turn.Params = conversation.NewParams(o.Sampling, "options.num_predict", "prompt")
	r.turn.Stream = true
	r.turn.Options.AddGenerationPrompt = true
	return r
}

// within reads the members of the object v, which is at the path under, with the setters in tables.
func (r *reading) within(under string, v value, tables ...map[string]setter) {
	r.Under = under
fields:
	for _, f := range r.Object(v, "an object") {
		for _, t := range tables {
			if set := t[string(f.Name)]; set != nil {
				set(r, f.Value)
				continue fields
			}
		}
		r.Unknown("", f)
	}
	r.Under = ""
}

// shared are the fields of /api/chat and /api/generate.
var shared = map[string]setter{
	"model":  func(r *reading, v value) { r.turn.Model = r.Text(v) },
	"stream": func(r *reading, v value) { r.turn.Stream = r.Flag(v) },
	"format": (*reading).format,
	"options": func(r *reading, v value) {
		r.within("options.", v, options)
	},
	"keep_alive": func(r *reading, v value) { // the model stays loaded, whatever it says
		switch string(v.Raw) {
		case "0", `"0"`, `"0s"`, `"0m"`, `"0h"`:
			r.unload = true
		}
		r.Ignore("keep_alive")
	},
	"think":    (*reading).think,
	"logprobs": func(r *reading, v value) { r.turn.Logprobs = r.Flag(v) },
	"top_logprobs": func(r *reading, v value) {
		r.turn.TopLogprobs, r.top = int(r.Integer(v, 0, maxTopScore)), &v
	},
	"images": (*reading).images,
}

var chatFields = map[string]setter{
	"messages": (*reading).conversation,
	"tools": func(r *reading, v value) {
		all := r.Objects(v, maxTools)
		if !r.Lenient {
			for _, raw := range all {
				r.tools = append(r.tools, conversation.ReadTool(&r.Decoder, value{Raw: raw, Top: v.Top}))
			}
		}
		if len(all) > 0 {
			r.turn.Options.Tools = all
		}
	},
}

var generateFields = map[string]setter{
	"prompt": func(r *reading, v value) { r.prompt = r.Text(v) },
	"system": func(r *reading, v value) { r.system = r.Text(v) },
	"raw":    func(r *reading, v value) { r.raw = r.Flag(v) },
	"context": func(r *reading, v value) {
		for _, e := range r.List(v, "an array of token ids") {
			if len(r.context) == maxContext {
				r.Fail(v, "invalid_value", "%s has over %d token ids", v, maxContext)
				break
			}
			r.context = append(r.context, kv.Token(r.Integer(e, 0, math.MaxUint32)))
		}
	},
	"suffix":   refused("suffix", "text is continued, not filled in"),
	"template": refused("template", "the model's own is used; raw takes a prompt as it is"),
}

// refused returns the setter of a field that is not supported unless it is "". why explains that.
func refused(name, why string) setter {
	return func(r *reading, v value) {
		if r.Text(v) != "" {
			r.Fail(v, conversation.Unsupported, "%s is not supported: %s", v, why)
		}
	}
}

// options are the members of "options". Those that say how Ollama loads a model are in harmless.
var options = map[string]setter{
	"num_predict": func(r *reading, v value) { // -1 and -2 are no limit, and so is 0
		r.turn.MaxTokens = int(max(r.Integer(v, -2, maxOutput), 0))
	},
	"temperature": func(r *reading, v value) { r.turn.Sampling.Temperature = r.Number(v, 0, 1000) },
	"top_k": func(r *reading, v value) {
		r.turn.Sampling.TopK = int32(max(r.Integer(v, -1, math.MaxInt32), 0))
	},
	"top_p": func(r *reading, v value) { // 0 leaves the most probable token, while the sampler's 0 is off
		if r.turn.Sampling.TopP = r.Number(v, 0, 1); r.turn.Sampling.TopP == 0 {
			r.turn.Sampling.TopP = math.SmallestNonzeroFloat32
		}
	},
	"min_p":             func(r *reading, v value) { r.turn.Sampling.MinP = r.Number(v, 0, 1) },
	"repeat_penalty":    func(r *reading, v value) { r.turn.Sampling.RepetitionPenalty = r.Above(v, 10) },
	"presence_penalty":  func(r *reading, v value) { r.turn.Sampling.PresencePenalty = r.Number(v, -2, 2) },
	"frequency_penalty": func(r *reading, v value) { r.turn.Sampling.FrequencyPenalty = r.Number(v, -2, 2) },
	"seed": func(r *reading, v value) {
		n := r.Integer(v, math.MinInt64, math.MaxInt64)
		r.turn.Sampling.Seed, r.turn.Seeded = uint64(n), n != -1 // -1 asks for a random seed
	},
	"stop": func(r *reading, v value) { r.turn.StopStrings = conversation.ReadStops(&r.Decoder, v) },
}

// format reads format: "json", a JSON schema, or "" for text.
func (r *reading) format(v value) {
	switch {
	case v.Raw[0] == '"':
		if r.OneOf(v, "", "json") == "json" {
			r.turn.Format = conversation.Format{JSON: true}
		}
	case v.Raw[0] != '{':
		r.Want(v, `"json" or a JSON schema, which is an object`)
	default:
		r.turn.Format = conversation.SchemaFormat(conversation.FillWrapper(v.Raw))
	}
	if r.turn.Format != (conversation.Format{}) {
		r.turn.From.Format, r.turn.From.Answer = "format", true
	}
}

// think reads think: whether the model is to reason, or how much. Templates read different variables.
func (r *reading) think(v value) {
	on := json.RawMessage("true")
	r.turn.Options.Variables = map[string]json.RawMessage{}
	if v.Raw[0] == '"' {
		r.OneOf(v, "low", "medium", "high", "max")
		r.turn.Options.Variables["reasoning_effort"] = v.Raw
	} else if !r.Flag(v) {
		on = json.RawMessage("false")
	}
	r.turn.Options.Variables["enable_thinking"], r.turn.Options.Variables["thinking"] = on, on
}

// images refuses images by name. Clients send an empty list for none.
func (r *reading) images(v value) {
	for range r.List(v, "an array of images") {
		r.Fail(v, conversation.Unsupported, "%s are not supported: the models here take text", v)
		return
	}
}

// finish checks conditions on several fields.
func (r *reading) finish(form string) error {
	t := &r.turn
	if r.top != nil && t.TopLogprobs > 0 && !t.Logprobs {
		r.Fail(*r.top, "invalid_value", "%s requires logprobs to be true", *r.top)
	}
	if r.messages != nil {
		t.From.Prompt = "messages"
	}
	err := t.Offer(r.tools, conversation.Choice{Form: form})
	t.Ignored = r.Skipped
	return err
}
