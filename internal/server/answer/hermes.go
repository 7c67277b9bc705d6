package answer

import (
	"encoding/json"
	"strings"
)

// hermes takes calls of tools out of the text of an output, which may come in pieces of
// any size. A call is
//
//	<tool_call>{"name": "weather", "arguments": {"city": "Paris"}}</tool_call>
//
// with white space where it may be; the last one may lack its end. A call that is broken
// comes out as text. White space beside calls, up to heldSpace bytes, is left out.
//
// It holds back at most heldSpace bytes of white space and the beginning of a tag, and
// a call until it is whole. Each byte is looked at once.
//
// Source of the form: the chat templates of NousResearch/Hermes-2-Pro and Qwen/Qwen2.5.
type hermes struct {
	// prompt gives the arguments of a call as they come, where the text is known to be
	// calls of the form that jsonschema.Calls describes.
	prompt bool
	only   bool // the first call counts, others are left out

	state   hermesState
	held    []byte // space, then what may be the beginning of a tag, or a call from its tag on
	matched int    // bytes of the tag that are at the end of held
	body    int    // where in held the call's object begins; in hermesOpen, where the tag ends
	json    jsonWalk
	calls   int  // that have begun
	begun   bool // the arguments of this one are being given
	said    []byte
	events  []outputEvent
}

type hermesState uint8

const (
	hermesText  hermesState = iota
	hermesOpen              // behind <tool_call>
	hermesBody              // in the object
	hermesClose             // behind it
)

const (
	openTag, closeTag = "<tool_call>", "</tool_call>"
	heldSpace         = 24
)

// next gives what the output's next piece brings. The list is valid until the next call.
func (h *hermes) next(text string) []outputEvent {
	h.events = h.events[:0]
	h.feed(text)
	h.flush()
	return h.events
}

// last gives what was held back, once the output has ended.
func (h *hermes) last() []outputEvent {
	h.events = h.events[:0]
	switch {
	case h.begun: // cut off within its arguments
	case h.prompt: // cut off before them
	case h.state == hermesClose && h.take(h.held[h.body:h.body+h.json.size]):
	case h.state == hermesText && h.calls > 0 && h.matched == 0: // space behind a call
	default:
		h.said = append(h.said, h.held...)
	}
	h.held = h.held[:0]
	h.flush()
	return h.events
}

// flush makes an event of what was said, or given as arguments.
func (h *hermes) flush() {
	if len(h.said) == 0 {
		return
	}
	kind := saidText
	if h.begun {
		kind = gaveArguments
	}
	if kind == saidText || !h.dropped() {
		h.events = append(h.events, outputEvent{kind, string(h.said)})
	}
	h.said = h.said[:0]
}

// dropped reports whether the call that began last is left out.
func (h *hermes) dropped() bool { return h.only && h.calls > 1 }

func (h *hermes) feed(text string) {
	for i := 0; i < len(text); i++ {
		switch c := text[i]; h.state {
		case hermesText:
			if h.matched == 0 && len(h.held) == 0 { // the usual case
				n := strings.IndexAny(text[i:], "< \n\r\t")
				if n < 0 {
					n = len(text) - i
				}
				h.said = append(h.said, text[i:i+n]...)
				if i += n; i == len(text) {
					return
				}
				c = text[i]
			}
			h.plain(c)
		default:
			h.called(c)
		}
	}
}

// plain takes a byte of text.
func (h *hermes) plain(c byte) {
	switch {
	case h.matched > 0 && c == openTag[h.matched]:
		h.held = append(h.held, c)
		if h.matched++; h.matched == len(openTag) {
			h.body = len(h.held)
			h.state, h.matched, h.json = hermesOpen, 0, jsonWalk{}
		}
	case h.matched > 0:
		h.release()
		h.plain(c) // not again: nothing is matched
	case c == '<':
		h.held = append(h.held, c)
		h.matched = 1
	case isSpace(c):
		if len(h.held) == heldSpace {
			h.said = append(h.said, h.held[0])
			h.held = append(h.held[:0], h.held[1:]...)
		}
		h.held = append(h.held, c)
	default:
		h.release()
		h.said = append(h.said, c)
	}
}

// release gives what is held as text.
func (h *hermes) release() {
	h.said = append(h.said, h.held...)
	h.held, h.matched, h.state = h.held[:0], 0, hermesText
}

// called takes a byte behind a tag.
func (h *hermes) called(c byte) {
	switch h.state {
	case hermesOpen:
		switch {
		case c == '{':
			h.body = len(h.held)
			h.state = hermesBody
			h.within(c)
		case isSpace(c) && len(h.held) < h.body+heldSpace:
			h.held = append(h.held, c)
		default:
			h.broken(c)
		}
	case hermesBody:
		h.within(c)
	default:
		h.behind(c)
	}
}

// within takes a byte of the object.
func (h *hermes) within(c byte) {
	switch h.json.step(c) {
	case jsonBroken:
		h.broken(c)
		return
	case jsonEnded:
		h.state = hermesClose
		h.matched = 0
	}
	switch {
	case h.begun && (h.json.depth > 1 || h.json.closed == 2):
		h.said = append(h.said, c)
		return
	case h.begun:
		return // the call's own bracket
	}
	h.held = append(h.held, c)
	if h.prompt && h.json.depth == 2 && c == '{' {
		h.begin()
	}
}

// begin begins to give the arguments, if they come behind the name as they should.
func (h *hermes) begin() {
	const before, between = `{"name": `, `, "arguments": {`
	name, ok := strings.CutPrefix(string(h.held[h.body:]), before)
	name, end := strings.CutSuffix(name, between)
	if !ok || !end || json.Unmarshal([]byte(name), &name) != nil {
		return
	}
	h.flush()
	if h.calls++; !h.dropped() {
		h.events = append(h.events, outputEvent{beganCall, name})
	}
	h.begun = true
	h.said = append(h.said, '{')
}

// behind takes a byte behind the object.
func (h *hermes) behind(c byte) {
	switch {
	case c == closeTag[h.matched]:
		if h.matched++; h.matched < len(closeTag) {
			break
		}
		if h.begun {
			h.flush()
			h.begun = false
		} else if !h.take(h.held[h.body : h.body+h.json.size]) {
			h.held = append(h.held, c)
			h.release()
			return
		}
		h.held, h.matched, h.state = h.held[:0], 0, hermesText
		return
	case h.matched == 0 && isSpace(c) && len(h.held) < h.body+h.json.size+heldSpace:
	default:
		h.broken(c)
		return
	}
	h.held = append(h.held, c)
}

// broken gives what should have been a call as text, and reads c as text.
func (h *hermes) broken(c byte) {
	if h.begun { // what was given can't be taken back
		h.flush()
		h.begun, h.held = false, h.held[:0]
	}
	h.release()
	h.plain(c)
}

// take gives a whole call; false if it is none.
func (h *hermes) take(body []byte) bool {
	var all map[string]json.RawMessage
	var name string
	if json.Unmarshal(body, &all) != nil || json.Unmarshal(all["name"], &name) != nil || name == "" {
		return false
	}
	arguments := "{}"
	if raw := all["arguments"]; len(raw) > 0 && string(raw) != "null" {
		arguments = string(raw)
		if raw[0] == '"' && json.Unmarshal(raw, &arguments) != nil { // an object within a text
			return false
		}
		if text := strings.TrimLeft(arguments, spaces); text == "" || text[0] != '{' || !json.Valid([]byte(arguments)) {
			return false
		}
	}
	h.flush()
	if h.calls++; !h.dropped() {
		h.events = append(h.events, outputEvent{beganCall, name}, outputEvent{gaveArguments, arguments})
	}
	return true
}

func isSpace(c byte) bool { return c == ' ' || c == '\n' || c == '\r' || c == '\t' }
