package answer

import (
	"fmt"

	"github.com/coppice-llm/coppice/grammar/toolcall/parse"
	"github.com/coppice-llm/coppice/internal/jsontext"
)

// message is a whole output, split into the fields of a chat message.
type message struct {
	content, reasoning []byte
	calls              []toolCall
}

// toolCall is a tool call.
type toolCall struct {
	name      string
	arguments []byte
}

// split splits a complete text.
func split(p *parser, text string) (m message) {
	for _, e := range p.next(text, true) {
		switch e.Kind {
		case parse.Text:
			m.content = append(m.content, e.Text...)
		case parse.Thought:
			m.reasoning = append(m.reasoning, e.Text...)
		case parse.Call:
			m.calls = append(m.calls, toolCall{name: e.Text})
		case parse.Arguments:
			last := &m.calls[len(m.calls)-1]
			last.arguments = append(last.arguments, e.Text...)
		}
	}
	return m
}

// appendCallID writes the id of a tool call, made from the answer's id and the numbers of the
// choice and the call.
func (a *Answer) appendCallID(dst []byte, choice, call int) []byte {
	id := a.head.ID[max(len(a.head.ID)-16, 0):]
	return fmt.Appendf(dst, `"call_%s_%d_%d"`, id, choice, call)
}

// appendCall writes {"id", "type", "function": {"name", "arguments": up to the value of arguments,
// and leaves the objects open. choice and call are the numbers of the choice and of the call in
// it, for the id.
func (a *Answer) appendCall(dst []byte, choice, call int, name string) []byte {
	dst = append(dst, `"id":`...)
	dst = a.appendCallID(dst, choice, call)
	dst = append(dst, `,"type":"function","function":{"name":`...)
	dst = jsontext.AppendString(dst, name)
	return append(dst, `,"arguments":`...)
}
