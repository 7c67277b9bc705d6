package responses

import (
	"encoding/json"

	"github.com/coppice-llm/coppice/conversation"
)

// maxTools is the most tools of a request.
const maxTools = 128

// readTools reads the tools. They go to the template in the form of chat completions, so that a conversation has the same
// prompt in both APIs.
func (r *reading) readTools(v value) {
	r.OfPrompt = true
	var all []json.RawMessage
	for i, e := range r.List(v, "an array of tools") {
		if i == maxTools && !r.Lenient {
			r.Fail(v, "invalid_value", "%s has over %d tools", v, maxTools)
		}
		mark := len(r.Kept)
		if raw := r.tool(e); raw != nil {
			all = append(all, raw)
		}
		r.Kept = r.Kept[:mark]
	}
	if len(all) > 0 {
		r.ask.Options.Tools = all
	}
	r.ask.shown.tools = r.repeated(v)
	r.OfPrompt = false
}

// tool reads {"type": "function", "name", "description", "parameters"}, and returns it in the form of chat completions.
func (r *reading) tool(v value) json.RawMessage {
	var t conversation.Tool
	var kind string
	var name, description value
	all := r.Object(v, "a tool, which is an object")
	for _, f := range all {
		if string(f.Name) != "type" {
			continue
		}
		if kind = r.Text(f.Value); kind != "function" {
			r.Fail(f, conversation.Unsupported, "%s is %q, which is not supported: the server runs no tools itself; give tools of the type function", f, kind)
			return v.Raw
		}
	}
	if kind == "" {
		r.Missing(v.At("type"))
	}
	for _, f := range all {
		switch string(f.Name) {
		case "type":
		case "name":
			name, t.Name = f.Value, r.Label(f.Value, "")
		case "description":
			r.Text(f.Value)
			description = f.Value
		case "parameters":
			r.Object(f.Value, "a JSON schema, which is an object")
			t.Parameters = f.Raw
		case "strict": // calls always follow the schema
			r.Flag(f.Value)
		case "allowed_callers", "defer_loading", "output_schema": // for programs and searches that run in the server
			r.Ignore("tools[]." + string(f.Name))
		default:
			r.Unknown("tools[].", f)
		}
	}
	if t.Name == "" {
		r.Missing(v.At("name"))
		return nil
	}
	r.tools = append(r.tools, t)
	raw := append([]byte(`{"type":"function","function":{"name":`), name.Raw...)
	if description.Raw != nil {
		raw = append(append(raw, `,"description":`...), description.Raw...)
	}
	if t.Parameters != nil {
		raw = append(append(raw, `,"parameters":`...), t.Parameters...)
	}
	return append(raw, "}}"...)
}

// toolChoice reads "none", "auto", "required", the name of a function, or the tools that are allowed. With "none" the template
// sees no tools; with some allowed it sees all, so that the prompt stays the same.
func (r *reading) toolChoice(v value) {
	c := &r.choice
	c.From, r.ask.shown.choice = "tool_choice", r.repeated(v)
	if v.Raw[0] != '{' {
		s := r.OneOf(v, "none", "auto", "required")
		c.None, c.Required = s == "none", s == "required"
		return
	}
	var kind, mode string
	var at, list value
	r.Fields(v, "tool_choice.", map[string]func(value){
		"type":  func(v value) { at, kind = v, r.Text(v) },
		"name":  func(v value) { c.Name = r.Text(v) },
		"mode":  func(v value) { mode = r.OneOf(v, "auto", "required") },
		"tools": func(v value) { list = v },
	})
	switch {
	case kind == "function" && c.Name == "":
		r.Missing(v.At("name"))
	case kind == "function":
		c.From = "tool_choice.name"
	case kind == "allowed_tools" && list.Raw == nil:
		r.Missing(v.At("tools"))
	case kind == "allowed_tools":
		c.Required, c.Name, r.allowed = mode == "required", "", allowed{[]string{}, list}
		for _, e := range r.List(list, "an array of tools") {
			r.allowedTool(e)
		}
	case kind == "":
		r.Missing(v.At("type"))
	default:
		r.Fail(at, conversation.Unsupported, "%s is %q, which is not supported: the server runs no tools itself", v.At("type"), kind)
	}
}

// allowedTool reads {"type": "function", "name"}.
func (r *reading) allowedTool(v value) {
	mark := len(r.Kept)
	name := ""
	r.Fields(v, "tool_choice.tools[].", map[string]func(value){
		"type": func(v value) { r.OneOf(v, "function") },
		"name": func(v value) { name = r.Text(v) },
	})
	if r.Kept = r.Kept[:mark]; name == "" {
		r.Missing(v.At("name"))
	}
	r.allowed.names = append(r.allowed.names, name)
}
