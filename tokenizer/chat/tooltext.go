package chat

import (
	"cmp"
	"slices"
	"strings"
)

// The form is that of Hermes models, which other models have learnt, too. The text says nothing of results: with a sentence that
// they come between <tool_response> tags, Qwen2.5-Coder 1.5B wrote its calls between those. Of 25 first turns of tools/e2e/tasks 4 had
// a call then, and 18 without the sentence.
//
// Source: NousResearch/Hermes-Function-Calling, README, "Prompt Format for Function Calling".
const (
	callOpen, callArguments, callClose = "<tool_call>\n{\"name\": ", ", \"arguments\": ", "}\n</tool_call>"
	resultOpen, resultClose            = "<tool_response>\n", "\n</tool_response>"
	toolsOpen, toolsClose              = "<tools>\n", "</tools>"
	toolsBefore                        = "# Tools\n\nThe functions below are yours to call. Between the tags is one of them on each line, described in JSON.\n"
	toolsAfter                         = "\n\nTo call a function, write its name and its arguments between tags, exactly in this form:\n" +
		callOpen + `"the name"` + callArguments + `{"a parameter": "its value"}` + callClose +
		"\nSeveral calls are several such blocks. If no function helps, answer without a call."
)

// instruct adds a description of the tools to the system message. If the template takes none, the texts of
// the system message and of the tools become the beginning of the user's first turn.
func (a *adapter) instruct(turns []any) []any {
	text := ""
	if a.tools != nil && len(a.tools.items) > 0 {
		text = a.describe()
	}
	role, add := systemRole, func(content any) any { return a.after(content, "\n\n", text) }
	if a.plan.fold {
		n := 0
		for n < len(turns) && roleOf(turns[n].(*dict)) == systemRole {
			n++
		}
		for _, m := range slices.Backward(turns[:n]) {
			text = a.both(a.plain(at(m.(*dict), contentKey)), "\n\n", text)
		}
		turns, role = turns[n:], userRole
		add = func(content any) any { return a.before(text, "\n\n", content) }
	}
	switch {
	case text == "":
	case len(turns) > 0 && roleOf(turns[0].(*dict)) == role:
		m := turns[0].(*dict)
		turns[0] = a.replaced(m, contentKey, add(at(m, contentKey)))
	default:
		turns = append([]any{message(role, text)}, turns...)
	}
	return turns
}

// describe returns the text that describes tools to the model.
func (a *adapter) describe() string {
	var b strings.Builder
	a.run.add(&b, toolsBefore+toolsOpen)
	for _, t := range a.tools.items {
		a.run.add(&b, a.json(t)+"\n")
	}
	a.run.add(&b, toolsClose+toolsAfter)
	return b.String()
}

// filled returns tools with descriptions of tools and parameters, and with parameters, where they have none.
func (a *adapter) filled() *list {
	out := &list{}
	for _, t := range a.tools.items {
		d, _ := t.(*dict)
		if f, ok := at(d, "function").(*dict); ok {
			parameters, ok := at(f, "parameters").(*dict)
			if !ok {
				parameters = newDict()
				parameters.set("type", "object")
			}
			properties, ok := at(parameters, "properties").(*dict)
			if !ok {
				properties = newDict()
			}
			a.run.spend(dictSteps * (1 + len(properties.keys)))
			all := newDict()
			for i, key := range properties.keys {
				v := properties.values[i]
				if p, ok := v.(*dict); ok {
					v = a.described(p)
				}
				all.set(key, v)
			}
			t = a.replaced(d, "function", a.replaced(a.described(f), "parameters", a.replaced(parameters, "properties", all)))
		}
		out.items = append(out.items, t)
	}
	return out
}

// described returns d with an empty description if it has none.
func (a *adapter) described(d *dict) *dict {
	if at(d, "description") != nil {
		return d
	}
	return a.replaced(d, "description", "")
}

// functions sets the variables functions and datetime, unless the request has them.
//
// Source: the model card of fireworks-ai/llama-3-firefunction-v2.
func (a *adapter) functions(vars map[string]any) {
	all := &list{}
	if a.tools != nil {
		for _, t := range a.tools.items {
			d, _ := t.(*dict)
			all.items = append(all.items, cmp.Or(at(d, "function"), t))
		}
	}
	for name, text := range map[string]string{"functions": a.json(all), "datetime": a.now} {
		if _, ok := vars[name]; !ok {
			vars[name] = text
		}
	}
}
