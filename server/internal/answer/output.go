package answer

import (
	"fmt"

	"github.com/coppice-llm/coppice/internal/jsontext"
	"github.com/coppice-llm/coppice/openai"
)

// output splits the text of a choice into reasoning, content and tool calls.
type output struct {
	think  *thinking // nil: no reasoning expected
	calls  *hermes   // nil: no tools
	events []outputEvent
}

// outputEvent is a part of an output, in the order of the text.
type outputEvent struct {
	kind outputKind
	text string
}

// outputKind is the part of an answer that an event belongs to.
type outputKind uint8

const (
	saidText      outputKind = iota // content
	saidThought                     // reasoning_content
	beganCall                       // text is the tool's name
	gaveArguments                   // text continues the arguments of the last call
)

// newOutput returns nil if the whole text is content.
func (a *Answer) newOutput() *output {
	if a.calls == openai.NoCalls && !a.reasoning {
		return nil
	}
	o := &output{}
	if a.reasoning {
		o.think = &thinking{inside: a.opened}
	}
	if a.calls != openai.NoCalls {
		o.calls = &hermes{prompt: a.calls == openai.ForcedCalls, only: a.calls == openai.OneCall}
	}
	return o
}

// next returns the events of text, the next piece of the output. last says that the output has
// ended: next then also returns events for all delayed bytes. The slice is valid until the next
// call.
func (o *output) next(text string, last bool) []outputEvent {
	o.events = o.events[:0]
	if o.think != nil {
		var thought string
		if thought, text = o.think.next(text, last); thought != "" {
			o.events = append(o.events, outputEvent{saidThought, thought})
		}
	}
	if o.calls == nil {
		if text != "" {
			o.events = append(o.events, outputEvent{saidText, text})
		}
		return o.events
	}
	o.events = append(o.events, o.calls.next(text, last)...)
	return o.events
}

// called reports whether a tool was called.
func (o *output) called() bool { return o != nil && o.calls != nil && o.calls.calls > 0 }

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

// message splits a complete text.
func (o *output) message(text string) (m message) {
	for _, e := range o.next(text, true) {
		switch e.kind {
		case saidText:
			m.content = append(m.content, e.text...)
		case saidThought:
			m.reasoning = append(m.reasoning, e.text...)
		case beganCall:
			m.calls = append(m.calls, toolCall{name: e.text})
		case gaveArguments:
			last := &m.calls[len(m.calls)-1]
			last.arguments = append(last.arguments, e.text...)
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
