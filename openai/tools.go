package openai

import "github.com/coppice-llm/coppice/conversation"

// tools reads the tools, which go to the template as raw JSON. Their shape is checked, because a
// template writes nonsense for an unexpected one.
func (r *reading) tools(v value) {
	all := r.Objects(v, maxTools)
	if !r.Lenient {
		for _, raw := range all {
			r.toolList = append(r.toolList, conversation.ReadTool(&r.Decoder, value{Raw: raw, Top: v.Top}))
		}
	}
	if len(all) > 0 {
		r.chat.Options.Tools = all
	}
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
