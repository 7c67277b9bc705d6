package chat

import "slices"

// contents finds out whether a template loops over the content of a message, as in {% for part in message.content %}: such a
// template expects parts where a client sends parts. Others expect a text.
//
// vLLM decides likewise (_iter_nodes_assign_content_item in vllm/renderers/hf.py, 0.32): a variable named content counts too,
// and in a macro each parameter that some call of the macro gives a content.
type contents struct {
	calls []*call // of the template
}

// loop reports whether a statement of body is a loop over a content. names are the variables that hold contents.
func (c contents) loop(body []stmt, names []string) bool {
	return slices.ContainsFunc(body, func(s stmt) bool {
		switch s := s.(type) {
		case *loopOver:
			over, ok := s.over.(*name)
			return ok && slices.Contains(names, over.name) || isContent(s.over) || c.loop(s.body, names) || c.loop(s.other, names)
		case *choice:
			return slices.ContainsFunc(s.bodies, func(b []stmt) bool { return c.loop(b, names) }) || c.loop(s.other, names)
		case *assignBlock:
			return c.loop(s.body, names)
		case *define:
			return c.loop(s.body, c.params(s))
		case *filterBlock:
			return c.loop(s.body, names)
		case *with:
			return c.loop(s.body, names)
		case *block:
			return c.loop(s.body, names)
		}
		return false
	})
}

// params returns the parameters of a macro that get a content in some call.
func (c contents) params(macro *define) (all []string) {
	for _, made := range c.calls {
		if of, ok := made.of.(*name); !ok || of.name != macro.name {
			continue
		}
		for i, arg := range made.args.positional {
			if i < len(macro.params) && isContent(arg) {
				all = append(all, macro.params[i])
			}
		}
		for i, arg := range made.args.named {
			if isContent(arg) && slices.Contains(macro.params, made.args.names[i]) {
				all = append(all, made.args.names[i])
			}
		}
	}
	return all
}

// isContent reports whether e is x.content or x['content'], perhaps filtered or sliced.
func isContent(e expr) bool {
	switch e := e.(type) {
	case *attribute:
		return e.name == contentKey
	case *item:
		key, ok := e.key.(*literal)
		return ok && key.value == contentKey
	case *filterCall:
		return isContent(e.of)
	case *slice:
		return isContent(e.of)
	}
	return false
}

const contentKey = "content"
