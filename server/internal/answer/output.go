package answer

import (
	"fmt"
	"strings"

	"github.com/coppice-llm/coppice/internal/jsontext"
	"github.com/coppice-llm/coppice/openai"
	"github.com/coppice-llm/coppice/tokenizer"
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

// thinking separates reasoning from the text of an output, which arrives in pieces of any size.
// The reasoning is the text between <think> and </think> at the beginning of the output. White
// space around the reasoning is dropped. thinking delays at most heldSpace bytes of white space
// and the beginning of a tag.
//
// Source: the chat templates of Qwen/Qwen3 and deepseek-ai/DeepSeek-R1.
type thinking struct {
	inside bool   // inside the reasoning; set from the start if the prompt ends with the tag
	done   bool   // the reasoning has ended, or there is none
	begun  bool   // some text of the current part was given: stop dropping white space
	held   string // delayed text
}

const openThink, closeThink = "<think>", "</think>"

// next returns the reasoning and the content in text, the next piece of the output. last says that
// the output has ended: next then returns all delayed text too.
func (t *thinking) next(text string, last bool) (thought, rest string) {
	if t.done && t.begun && t.held == "" {
		return "", text
	}
	text = t.held + text
	t.held = ""
	if !t.inside && !t.done {
		begin := trimSpaceLeft(text)
		near := len(text)-len(begin) <= heldSpace
		switch {
		case near && strings.HasPrefix(begin, openThink):
			t.inside, text = true, begin[len(openThink):]
		case near && !last && strings.HasPrefix(openThink, begin):
			t.held = text
			return "", ""
		default:
			t.done, t.begun = true, true
			return "", text
		}
	}
	if t.inside {
		if thought, text = t.within(text, last); t.inside {
			return thought, ""
		}
	}
	if !t.begun { // first content after the reasoning
		text = trimSpaceLeft(text)
		t.begun = text != ""
	}
	return thought, text
}

// within scans text of the reasoning. It returns the reasoning in it, and in rest the text after
// the closing tag. It delays text that may begin the closing tag, unless last says that the output
// has ended.
func (t *thinking) within(text string, last bool) (thought, rest string) {
	if !t.begun {
		text = trimSpaceLeft(text)
	}
	end := strings.Index(text, closeThink)
	if end >= 0 {
		thought, rest = trimSpaceRight(text[:end]), text[end+len(closeThink):]
		t.inside, t.done, t.begun = false, true, false
		return thought, rest
	}
	if last {
		return trimSpaceRight(text), ""
	}
	keep := len(trimSpaceRight(text[:len(text)-begins(text, closeThink)]))
	t.begun = t.begun || keep > 0
	t.held = text[keep:]
	return text[:keep], ""
}

// begins returns the length of the beginning of tag with which text ends, 0 if it ends with none.
func begins(text, tag string) int {
	n := min(len(tag)-1, len(text))
	for !strings.HasSuffix(text, tag[:n]) {
		n--
	}
	return n
}

const spaces = " \n\r\t"

func trimSpaceLeft(s string) string { return strings.TrimLeft(s, spaces) }

// trimSpaceRight drops at most heldSpace bytes.
func trimSpaceRight(s string) string {
	least := max(len(s)-heldSpace, 0)
	return s[:least] + strings.TrimRight(s[least:], spaces)
}

// OpensReasoning reports whether a rendered conversation ends with the opening tag of the
// model's reasoning.
func OpensReasoning(rendered string) bool {
	return strings.HasSuffix(trimSpaceRight(rendered), openThink)
}

// Reasons reports whether a model with this tokenizer may write reasoning between tags: both
// tags are single tokens.
func Reasons(tok *tokenizer.Tokenizer) bool {
	return len(tok.Encode(nil, openThink)) == 1 && len(tok.Encode(nil, closeThink)) == 1
}
