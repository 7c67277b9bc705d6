package chat

import "slices"

// loopsOverContent reports whether a statement is a loop over the content of something, as in
// {% for part in message.content %}: such a template expects parts where a client sends parts. Others expect a text.
//
// vLLM decides likewise, in renderers/hf.py.
func loopsOverContent(body []stmt) bool {
	return slices.ContainsFunc(body, func(s stmt) bool {
		switch s := s.(type) {
		case *loopOver:
			return isContent(s.over) || loopsOverContent(s.body) || loopsOverContent(s.other)
		case *choice:
			return slices.ContainsFunc(s.bodies, loopsOverContent) || loopsOverContent(s.other)
		case *assignBlock:
			return loopsOverContent(s.body)
		case *define:
			return loopsOverContent(s.body)
		case *filterBlock:
			return loopsOverContent(s.body)
		case *with:
			return loopsOverContent(s.body)
		case *block:
			return loopsOverContent(s.body)
		}
		return false
	})
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
