package chat

import (
	"cmp"
	"slices"
	"strings"
)

// The form is that of Hermes models, which other models have learnt, too.
//
// Source: NousResearch/Hermes-Function-Calling, README, "Prompt Format for Function Calling".
const (
	callOpen, callArguments, callClose = "<tool_call>\n{\"name\": ", ", \"arguments\": ", "}\n</tool_call>"
	resultOpen, resultClose            = "<tool_response>\n", "\n</tool_response>"
	toolsOpen, toolsClose              = "<tools>\n", "</tools>"
	toolsBefore                        = "# Tools\n\nThe functions below are yours to call. Between the tags is one of them on each line, described in JSON.\n"
	toolsAfter                         = "\n\nTo call a function, write its name and its arguments between tags, exactly in this form:\n" +
		callOpen + `"the name"` + callArguments + `{"a parameter": "its value"}` + callClose +
		"\nSeveral calls are several such blocks. Each result comes back between <tool_response> tags. If no function helps, answer without a call."
)

// instruct adds a description of the tools to the system message. If the template takes none, the texts of
// the system message and of the tools become the beginning of the user's first turn.
func (r *run) instruct(p plan, turns []any, tools *list) []any {
	text := ""
	if tools != nil && len(tools.items) > 0 {
		text = r.describe(tools)
	}
	n := 0
	for n < len(turns) && roleOf(turns[n].(*dict)) == systemRole && (n == 0 || p.fold) {
		n++
	}
	if !p.fold {
		switch {
		case text == "":
		case n > 0:
			m := turns[0].(*dict)
			turns[0] = r.replaced(m, contentKey, r.after(at(m, contentKey), "\n\n", text))
		default:
			turns = slices.Insert(turns, 0, message(systemRole, text))
		}
		return turns
	}
	for _, m := range slices.Backward(turns[:n]) {
		text = r.both(r.plain(at(m.(*dict), contentKey)), "\n\n", text)
	}
	turns = turns[n:]
	switch {
	case text == "":
	case len(turns) > 0 && roleOf(turns[0].(*dict)) == userRole:
		m := turns[0].(*dict)
		turns[0] = r.replaced(m, contentKey, r.before(text, "\n\n", at(m, contentKey)))
	default:
		turns = slices.Insert(turns, 0, message(userRole, text))
	}
	return turns
}

// describe returns the text that describes tools to the model.
func (r *run) describe(tools *list) string {
	var b strings.Builder
	r.add(&b, toolsBefore+toolsOpen)
	for _, t := range tools.items {
		r.format(&b, t, asJSON, 0)
		r.add(&b, "\n")
	}
	r.add(&b, toolsClose+toolsAfter)
	return b.String()
}

// filled returns tools with descriptions of tools and parameters, and with parameters, where they have none.
func (r *run) filled(tools *list) *list {
	out := &list{}
	for _, t := range tools.items {
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
			r.spend(dictSteps * (1 + len(properties.keys)))
			all := newDict()
			for i, key := range properties.keys {
				v := properties.values[i]
				if p, ok := v.(*dict); ok {
					v = r.described(p)
				}
				all.set(key, v)
			}
			t = r.replaced(d, "function", r.replaced(r.described(f), "parameters", r.replaced(parameters, "properties", all)))
		}
		out.items = append(out.items, t)
	}
	return out
}

// described returns d with an empty description if it has none.
func (r *run) described(d *dict) *dict {
	if at(d, "description") != nil {
		return d
	}
	return r.replaced(d, "description", "")
}

// functions sets the variables functions and datetime, unless the request has them.
//
// Source: the model card of fireworks-ai/llama-3-firefunction-v2.
func (r *run) functions(given map[string]any, tools *list, now string) {
	all := &list{}
	if tools != nil {
		for _, t := range tools.items {
			d, _ := t.(*dict)
			all.items = append(all.items, cmp.Or(at(d, "function"), t))
		}
	}
	for name, text := range map[string]string{"functions": r.json(all), "datetime": now} {
		if _, ok := given[name]; !ok {
			given[name] = text
		}
	}
}
