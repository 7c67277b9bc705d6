package openai

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/coppice-llm/coppice/internal/jsonbody"
)

// tools reads the tools, which go to the template as raw JSON. Their shape is checked, because a
// template writes nonsense for an unexpected one.
func (r *reading) tools(v value) {
	all := r.Objects(v, maxTools)
	if !r.Lenient {
		for _, raw := range all {
			r.toolList = append(r.toolList, r.tool(value{Raw: raw, Top: v.Top}))
		}
	}
	if len(all) > 0 {
		r.chat.Options.Tools = all
	}
}

// tool reads {"type": "function", "function": {…}}.
func (d *decoder) tool(v value) (t tool) {
	var kind string
	var function value
	d.Fields(v, "tools[].", map[string]func(value){
		"type":     func(v value) { kind = d.OneOf(v, "function") },
		"function": func(v value) { function = v },
	})
	switch {
	case kind == "":
		d.Missing(v.At("type"))
	case function.Raw == nil:
		d.Missing(v.At("function"))
	}
	return d.function(function)
}

// function reads {"name", "description", "parameters", "strict"}.
func (d *decoder) function(v value) (t tool) {
	d.Fields(v, "tools[].function.", map[string]func(value){
		"name":        func(v value) { t.Name = d.Label(v, "") },
		"description": func(v value) { d.Text(v) },
		"parameters": func(v value) {
			d.Object(v, "a JSON schema, which is an object")
			t.Parameters = v.Raw
		},
		"strict": func(v value) { d.Flag(v) }, // a forced call always follows the schema
	})
	if t.Name == "" {
		d.Missing(v.At("name"))
	}
	return t
}

// toolChoice reads tool_choice. With "none" the template sees no tools; with "auto" the model
// may write a call; with "required" or the name of a tool a grammar forces it to.
func (r *reading) toolChoice(v value) {
	c := &r.wanted
	c.from = v
	if v.Raw[0] != '{' {
		s := r.OneOf(v, "none", "auto", "required")
		c.none, c.required = s == "none", s == "required"
		return
	}
	var function value
	r.Fields(v, "tool_choice.", map[string]func(value){
		"type":     func(v value) { r.OneOf(v, "function") },
		"function": func(v value) { function = v },
	})
	if function.Raw != nil {
		r.Fields(function, "tool_choice.function.", map[string]func(value){
			"name": func(v value) { c.from, c.name = v, r.Text(v) },
		})
	}
	switch {
	case function.Raw == nil:
		r.Missing(v.At("function"))
	case c.name == "":
		r.Missing(function.At("name"))
	}
}

// maxCalls is the most calls in an output. A model that writes more repeats itself.
const maxCalls = 8

// checkTools sets Chat.Calls, which says how calls in the output are treated. It also sets a
// format: if tool_choice forces a call, if response_format has a schema that an output without
// calls must match, and otherwise one that holds a call to its tool's schema once it begins.
func (r *reading) checkTools() {
	c, choice := r.chat, &r.wanted
	forced := choice.required || choice.name != ""
	switch {
	case choice.none:
		c.Options.Tools = nil
		return
	case len(r.toolList) == 0:
		if forced {
			r.Fail(choice.from, "invalid_value", "%s requires a tool call, but there are no tools", choice.from)
		}
		return
	}
	tools, most := r.toolList, maxCalls
	if choice.name != "" {
		i := slices.IndexFunc(tools, func(t tool) bool { return t.Name == choice.name })
		if i < 0 {
			r.Fail(choice.from, "invalid_value", "%s is %q, but no tool has that name", choice.from, jsonbody.Clip(choice.name))
		}
		tools = []tool{{tools[i].Name, fillWrapper(tools[i].Parameters)}}
	}
	asked := choice.parallel != nil && *choice.parallel
	if choice.parallel != nil && !asked || choice.name != "" && !asked {
		most = 1
	}
	format := r.Format
	switch c.Calls = AnyCalls; {
	case forced && r.From.Format != "" && r.From.Format != "response_format":
		r.Fail(param(r.From.Format), "invalid_value", "%s and %s both constrain the output, want one", r.From.Format, choice.from)
	case forced: // response_format applies to answers without calls
		c.Calls = ForcedCalls
		r.hold(callFormat{Tools: tools, Most: most})
	case format.JSON:
		r.hold(callFormat{Tools: tools, Most: most, Answer: json.RawMessage(`{"type":"object"}`)})
	case format.JSONSchema != "" && r.From.Format == "response_format":
		r.hold(callFormat{Tools: tools, Most: most, Answer: json.RawMessage(format.JSONSchema)})
	case format == (Format{}) && len(r.AllowedTokens) == 0: // a call might need other tokens
		r.hold(callFormat{Auto: true, Tools: tools, Most: most})
	}
	if c.Calls == AnyCalls && most == 1 {
		c.Calls = OneCall
	}
}

// callFormat is Format.Calls. If Answer is set, it is a JSON schema, and the output may instead be
// an answer that matches this schema.
type callFormat struct {
	Auto   bool            `json:"auto,omitempty"` // first, see Format.Open
	Form   string          `json:"form,omitempty"`
	Tools  []tool          `json:"tools"`
	Most   int             `json:"most"` // calls
	Answer json.RawMessage `json:"answer,omitempty"`
}

// hold sets a format for the whole output.
func (r *reading) hold(f callFormat) {
	if form := r.wanted.form; form != "hermes" {
		f.Form = form
	}
	b, err := json.Marshal(f)
	if err != nil {
		panic("openai: schemas of a sound text can't be written: " + err.Error())
	}
	r.Format, r.From.Format = Format{Calls: string(b)}, "tools"
}

// Open says that the prompt ends with the opening tag of the model's reasoning, in which calls
// do not count.
func (f *Format) Open() {
	const auto = `{"auto":true,`
	if rest, ok := strings.CutPrefix(f.Calls, auto); ok {
		f.Calls = auto + `"opened":true,` + rest
	}
}
