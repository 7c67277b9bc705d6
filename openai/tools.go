package openai

import "github.com/coppice-llm/coppice/conversation"

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
func (d *decoder) tool(v value) (t conversation.Tool) {
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
func (d *decoder) function(v value) (t conversation.Tool) {
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
	c.From = v.String()
	if v.Raw[0] != '{' {
		s := r.OneOf(v, "none", "auto", "required")
		c.None, c.Required = s == "none", s == "required"
		return
	}
	var function value
	r.Fields(v, "tool_choice.", map[string]func(value){
		"type":     func(v value) { r.OneOf(v, "function") },
		"function": func(v value) { function = v },
	})
	if function.Raw != nil {
		r.Fields(function, "tool_choice.function.", map[string]func(value){
			"name": func(v value) { c.From, c.Name = v.String(), r.Text(v) },
		})
	}
	switch {
	case function.Raw == nil:
		r.Missing(v.At("function"))
	case c.Name == "":
		r.Missing(function.At("name"))
	}
}
