package answer

import (
	"encoding/json"
	"strings"
)

// hermes separates tool calls from the text of an output, which may arrive in pieces of any size.
// A call is
//
//	<tool_call>{"name": "weather", "arguments": {"city": "Paris"}}</tool_call>
//
// with white space between the parts; the closing tag of the last call may be missing. A malformed
// call is given as text. White space next to calls, up to heldSpace bytes, is dropped.
//
// hermes delays at most heldSpace bytes of white space and the beginning of a tag. It delays a
// call until the call is complete. Each byte is scanned once.
//
// Source: the chat templates of NousResearch/Hermes-2-Pro and Qwen/Qwen2.5.
type hermes struct {
	// prompt gives the arguments of a call as they arrive. It is set where a grammar forces the
	// text to be calls of the form that jsonschema.Calls describes.
	prompt bool
	only   bool // keep the first call, drop others

	state   hermesState
	held    []byte // white space and then a possible beginning of a tag; or a call from its opening tag on
	matched int    // length of the tag prefix at the end of held
	body    int    // in held: start of the call's object; in hermesOpen: end of the opening tag
	json    jsonWalk
	calls   int    // calls begun so far
	begun   bool   // the arguments of the current call are being given
	said    []byte // bytes to give with the next event
	events  []outputEvent
}

// hermesState is the position of the next byte relative to a call.
type hermesState uint8

const (
	hermesText  hermesState = iota
	hermesOpen              // after <tool_call>
	hermesBody              // inside the object
	hermesClose             // after the object
)

const (
	openTag, closeTag = "<tool_call>", "</tool_call>"
	heldSpace         = 24
)

// next returns the events of text, the next piece of the output. The slice is valid until the next
// call.
func (h *hermes) next(text string) []outputEvent {
	h.events = h.events[:0]
	h.feed(text)
	h.flush()
	return h.events
}

// last returns the events of the bytes that are still delayed, once the output has ended.
func (h *hermes) last() []outputEvent {
	h.events = h.events[:0]
	switch {
	case h.begun: // the output ended inside the arguments
	case h.prompt: // the output ended before the arguments
	case h.state == hermesClose && h.take(h.held[h.body:h.body+h.json.size]):
	case h.state == hermesText && h.calls > 0 && h.matched == 0: // only white space after a call
	default:
		h.said = append(h.said, h.held...)
	}
	h.held = h.held[:0]
	h.flush()
	return h.events
}

// flush turns the bytes in said into an event: text, or arguments.
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

// dropped reports whether the current call is left out.
func (h *hermes) dropped() bool { return h.only && h.calls > 1 }

// feed scans text byte by byte; runs of plain text are copied at once.
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

// plain scans a byte outside of calls.
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
		h.plain(c) // recurses once: matched is 0 now
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

// release gives the held bytes as text.
func (h *hermes) release() {
	h.said = append(h.said, h.held...)
	h.held, h.matched, h.state = h.held[:0], 0, hermesText
}

// called scans a byte after an opening tag.
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
		h.closing(c)
	}
}

// within scans a byte of the call's object.
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
		return // a bracket of the call's object, not of its arguments
	}
	h.held = append(h.held, c)
	if h.prompt && h.json.depth == 2 && c == '{' {
		h.begin()
	}
}

// begin starts giving the arguments, if the text before them has exactly the forced form.
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

// closing scans a byte after the object: white space or the closing tag.
func (h *hermes) closing(c byte) {
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

// broken gives a malformed call as text and scans c as text.
func (h *hermes) broken(c byte) {
	if h.begun { // events already given can't be taken back
		h.flush()
		h.begun, h.held = false, h.held[:0]
	}
	h.release()
	h.plain(c)
}

// take appends the events of a complete call. body is the call's JSON object. It returns false,
// and appends nothing, if body is not a call.
func (h *hermes) take(body []byte) bool {
	var all map[string]json.RawMessage
	var name string
	if json.Unmarshal(body, &all) != nil || json.Unmarshal(all["name"], &name) != nil || name == "" {
		return false
	}
	arguments := "{}"
	if raw := all["arguments"]; len(raw) > 0 && string(raw) != "null" {
		arguments = string(raw)
		if raw[0] == '"' && json.Unmarshal(raw, &arguments) != nil { // a JSON object encoded as a string
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
