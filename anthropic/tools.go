package anthropic

import (
	"encoding/json"
	"strings"

	"github.com/coppice-llm/coppice/conversation"
	"github.com/coppice-llm/coppice/internal/jsonbody"
	"github.com/coppice-llm/coppice/internal/jsontext"
)

// toolList reads tools. The template gets them in OpenAI's form, as templates expect.
func (r *reading) toolList(v value) {
	for i, e := range r.List(v, "an array of tools") {
		if i == maxTools {
			r.tooMany(v, maxTools, "tools")
		}
		at := len(r.Kept)
		r.tool(e)
		r.Kept = r.Kept[:at]
	}
}

// known are tools that clients run and whose schemas are not in requests, by the beginning of their types.
// They are offered with a schema that covers what their documentation describes.
//
// Source: docs.claude.com, "Bash tool" and "Text editor tool".
var known = []struct{ kind, description, schema string }{
	{"bash_", "Runs a command in a persistent bash session, or restarts the session.",
		`{"type":"object","properties":{"command":{"type":"string","description":"The command to run."},"restart":{"type":"boolean","description":"Restart the session."}}}`},
	{"text_editor_", "Views, creates and edits files.",
		`{"type":"object","properties":{"command":{"type":"string","enum":["view","create","str_replace","insert"]},"path":{"type":"string"},` +
			`"view_range":{"type":"array","items":{"type":"integer"},"description":"For view: the first and last line."},` +
			`"file_text":{"type":"string","description":"For create: the text of the file."},` +
			`"old_str":{"type":"string","description":"For str_replace: the text to replace, which occurs once."},` +
			`"new_str":{"type":"string","description":"For str_replace: the new text."},` +
			`"insert_line":{"type":"integer","description":"For insert: the line after which the text goes."},` +
			`"insert_text":{"type":"string","description":"For insert: the text."}},"required":["command","path"]}`},
}

// tool reads {"name", "description", "input_schema"}.
func (r *reading) tool(v value) {
	var kind, name, description string
	var schema []byte
	var cached mark
	marked := false
	all := r.Object(v, "a tool, which is an object")
	if v.Raw[0] != '{' {
		return
	}
	for _, f := range all {
		switch string(f.Name) {
		case "type":
			kind = r.Text(f.Value)
		case "name":
			name = r.Label(f.Value, "")
		case "description":
			description = r.Text(f.Value)
		case "input_schema":
			if f.Raw[0] != '{' {
				r.Want(f.Value, "a JSON schema, which is an object")
			} else {
				schema = f.Raw
			}
		case "cache_control":
			cached.ttl, marked = r.ttl(f.Value)
			cached.message, cached.at = anyTool, v
		default:
			r.Unknown("tools[].", f)
		}
	}
	if kind != "" && kind != "custom" {
		d, s, ok := r.typed(kind)
		if !ok {
			r.Fail(v, "unsupported_value", "%s is the tool %q, which this server does not have: give a tool with a name and an input_schema, and run what the model calls", v, jsonbody.Clip(kind))
			return
		}
		description, schema = d, s
	}
	switch {
	case name == "":
		r.Missing(v.At("name"))
		return
	case schema == nil:
		r.Missing(v.At("input_schema"))
		return
	}
	if marked {
		r.marks = append(r.marks, cached)
	}
	r.tools = append(r.tools, conversation.Tool{Name: name, Parameters: schema})
	r.Options.Tools = append(r.Options.Tools, function(name, description, schema))
}

// typed returns the description and schema of a tool of this type.
func (r *reading) typed(kind string) (description string, schema []byte, ok bool) {
	for _, k := range known {
		if strings.HasPrefix(kind, k.kind) && !strings.Contains(kind, "code_execution") {
			return k.description, []byte(k.schema), true
		}
	}
	return "", nil, false
}

// function writes a tool in OpenAI's form.
func function(name, description string, schema []byte) json.RawMessage {
	dst := append(make([]byte, 0, len(name)+len(description)+len(schema)+96), `{"type":"function","function":{"name":`...)
	dst = jsontext.AppendString(dst, name)
	if description != "" {
		dst = append(dst, `,"description":`...)
		dst = jsontext.AppendString(dst, description)
	}
	dst = append(dst, `,"parameters":`...)
	return append(append(dst, schema...), "}}"...)
}

// toolChoice reads {"type": "auto", "any", "tool" or "none", "name", "disable_parallel_tool_use"}.
func (r *reading) toolChoice(v value) {
	c := &r.wanted
	kind := ""
	c.From = "tool_choice"
	r.Fields(v, "tool_choice.", map[string]func(value){
		"type": func(v value) { kind = r.OneOf(v, "auto", "any", "tool", "none") },
		"name": func(v value) { c.Name = r.Text(v) },
		"disable_parallel_tool_use": func(v value) {
			parallel := !r.Flag(v)
			c.Parallel = &parallel
		},
	})
	c.None, c.Required = kind == "none", kind == "any"
	switch {
	case v.Raw[0] != '{':
	case kind == "":
		r.Missing(v.At("type"))
	case kind == "tool" && c.Name == "":
		r.Missing(v.At("name"))
	case kind != "tool" && c.Name != "":
		r.Fail(v.At("name"), "invalid_value", "%s is given, but %s is %q", v.At("name"), v.At("type"), kind)
	}
}
