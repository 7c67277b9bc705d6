package openai

import "github.com/coppice-llm/coppice/tokenizer/chat"

// tools go to the template as they are. Their shape is looked at, for a template that
// finds another one writes nonsense.
func (r *reading) tools(v value) {
	all := r.objects(v, MaxTools)
	for i, raw := range all {
		r.tool(value{raw, v.index(i)})
	}
	if len(all) > 0 {
		r.chat.Options.Tools = all
	}
}

func (d *decoder) tool(v value) {
	var kind string
	var function value
	for _, f := range d.object(v, "an object") {
		switch f.name {
		case "type":
			kind = d.oneOf(f.value, "function")
		case "function":
			function = f.value
		default:
			d.unknown(f)
		}
	}
	switch {
	case d.fault != nil:
	case kind == "":
		d.fail(v.at("type"), "missing_required_parameter", "%s is missing", v.at("type"))
	case function.raw == nil:
		d.fail(v.at("function"), "missing_required_parameter", "%s is missing", v.at("function"))
	}
	if d.fault == nil {
		d.function(function)
	}
}

func (d *decoder) function(v value) {
	named := false
	for _, f := range d.object(v, "an object") {
		switch f.name {
		case "name":
			named = d.text(f.value) != ""
		case "description":
			d.text(f.value)
		case "parameters":
			d.object(f.value, "a JSON schema, which is an object")
		case "strict":
			d.flag(f.value)
		default:
			d.unknown(f)
		}
	}
	if d.fault == nil && !named {
		d.fail(v.at("name"), "missing_required_parameter", "%s is missing", v.at("name"))
	}
}

// toolChoice: with "none" the template is shown no tools, with "auto" the model may
// write a call, as text. To make it write one would take a grammar of the model's way
// to write calls.
func (r *reading) toolChoice(v value) {
	if v.raw[0] == '{' {
		r.fail(v.path, "unsupported_value", "%s names a tool, which is not supported: give none or auto", v.path)
		return
	}
	switch s := r.oneOf(v, "none", "auto", "required"); s {
	case "none":
		r.noTools = true
	case "required":
		r.fail(v.path, "unsupported_value", "%s is %q, which is not supported: give none or auto", v.path, s)
	}
}

// toolCalls are those of an assistant's turn before.
func (d *decoder) toolCalls(v value) []chat.ToolCall {
	raws := d.objects(v, MaxToolCalls)
	var all []chat.ToolCall
	for i, raw := range raws {
		at := value{raw, v.index(i)}
		var call chat.ToolCall
		for _, f := range d.object(at, "an object") {
			switch f.name {
			case "id":
				call.ID = d.text(f.value)
			case "type":
				d.oneOf(f.value, "function")
			case "index": // of a stream's delta that is given back
				d.integer(f.value, 0, MaxToolCalls)
			case "function":
				d.called(f.value, &call)
			default:
				d.unknown(f)
			}
		}
		if d.fault == nil && call.Name == "" {
			d.fail(at.at("function.name"), "missing_required_parameter", "%s is missing", at.at("function.name"))
		}
		all = append(all, call)
	}
	return all
}

func (d *decoder) called(v value, call *chat.ToolCall) {
	for _, f := range d.object(v, "an object") {
		switch f.name {
		case "name":
			call.Name = d.text(f.value)
		case "arguments":
			d.text(f.value)
			call.Arguments = f.raw
		default:
			d.unknown(f)
		}
	}
}
