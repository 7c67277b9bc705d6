package answer

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/coppice-llm/coppice/openai"
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
// call until the call is complete. Each byte of a call is scanned once.
//
// Source: the chat templates of NousResearch/Hermes-2-Pro and Qwen/Qwen2.5.
type hermes struct {
	// prompt gives the arguments of a call as they arrive. It is set where a grammar forces the
	// text to be calls of the form that jsonschema.Calls describes.
	prompt bool
	only   bool // keep the first call, drop others

	state  hermesState
	held   string // in hermesText: white space and a possible beginning of a tag
	call   []byte // after that: white space, the opening tag and all after it but arguments that were given
	body   int    // in call: start of the object; in hermesOpen: end of the opening tag
	end    int    // in call: end of the object
	json   brackets
	calls  int    // calls begun so far
	begun  bool   // the arguments of the current call are being given
	said   []byte // bytes to give with the next event
	events []outputEvent
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

// next returns the events of text, the next piece of the output. last says that the output has
// ended: next then also returns the events of the delayed bytes. The slice is valid until the next
// call.
func (h *hermes) next(text string, last bool) []outputEvent {
	h.events = h.events[:0]
	for text != "" {
		if h.state == hermesText {
			text = h.plain(text)
		} else {
			text = h.called(text)
		}
	}
	if last {
		h.last()
	}
	h.flush()
	return h.events
}

// last gives the bytes that are still delayed, once the output has ended.
func (h *hermes) last() {
	switch {
	case h.prompt: // the output ended inside a call or next to one
	case h.state == hermesClose && h.take():
	case h.state != hermesText:
		h.said = append(h.said, h.call...)
	case h.calls == 0 || trimSpaceLeft(h.held) != "": // not only white space after a call
		h.said = append(h.said, h.held...)
	}
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

// plain reads text outside of calls, up to and including an opening tag. It returns the rest.
func (h *hermes) plain(text string) (rest string) {
	text = h.held + text
	tag := strings.Index(text, openTag)
	end := tag // of the text before the tag, or before what may begin one
	if tag < 0 {
		end = len(text) - begins(text, openTag)
	}
	white := len(trimSpaceRight(text[:end]))
	h.said = append(h.said, text[:white]...)
	if tag < 0 {
		h.held = text[white:]
		return ""
	}
	tag += len(openTag)
	h.call = append(h.call[:0], text[white:tag]...)
	h.held, h.state, h.body, h.json = "", hermesOpen, len(h.call), brackets{}
	return text[tag:]
}

// called reads text after an opening tag, up to the end of the call. It returns the rest. A
// malformed call is given as text; the rest then begins with the byte that breaks the call.
func (h *hermes) called(text string) (rest string) {
	for i := range len(text) {
		switch ok := h.step(text[i]); {
		case !ok && h.begun: // events already given can't be taken back
			h.flush()
			h.begun, h.state = false, hermesText
			return text[i:]
		case !ok:
			h.said = append(h.said, h.call...)
			h.state = hermesText
			return text[i:]
		case h.state == hermesText:
			return text[i+1:]
		}
	}
	return ""
}

// step reads a byte after an opening tag. It returns false if the byte breaks the call, and leaves
// the byte out of it.
func (h *hermes) step(c byte) bool {
	switch h.state {
	case hermesOpen:
		begun, ok := h.expect(c, h.body, "{")
		if begun {
			h.body, h.state = len(h.call)-1, hermesBody
			h.json.step(c)
		}
		return ok
	case hermesBody:
		return h.within(c)
	}
	ended, ok := h.expect(c, h.end, closeTag)
	if !ended {
		return ok
	}
	if !h.begun && !h.take() {
		h.call = h.call[:len(h.call)-1]
		return false
	}
	h.flush()
	h.begun, h.state = false, hermesText
	return true
}

// expect reads a byte of white space or of the text want after it; both begin at from in call. done
// reports that want is complete; ok is false if the byte is neither.
func (h *hermes) expect(c byte, from int, want string) (done, ok bool) {
	all := append(h.call[from:], c)
	seen := bytes.TrimLeft(all, spaces)
	if len(all)-len(seen) > heldSpace || !strings.HasPrefix(want, string(seen)) {
		return false, false
	}
	h.call = append(h.call, c)
	return string(seen) == want, true
}

// within reads a byte of the call's object.
func (h *hermes) within(c byte) bool {
	before := h.json.depth
	if !h.json.step(c) {
		return false
	}
	switch {
	case !h.begun:
		h.call = append(h.call, c)
		if h.prompt && h.json.depth == 2 && c == '{' {
			h.begin()
		}
	case max(before, h.json.depth) > 1: // not a bracket of the call's object
		h.said = append(h.said, c)
	}
	if h.json.depth == 0 {
		h.end, h.state = len(h.call), hermesClose
	}
	return true
}

// begin starts giving the arguments, if the text before them has exactly the forced form.
func (h *hermes) begin() {
	const before, between = `{"name": `, `, "arguments": {`
	name, ok := strings.CutPrefix(string(h.call[h.body:]), before)
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

// take appends the events of a complete call. It returns false, and appends nothing, if the object
// is not a call.
func (h *hermes) take() bool {
	var all map[string]json.RawMessage
	var name string
	if json.Unmarshal(h.call[h.body:h.end], &all) != nil || json.Unmarshal(all["name"], &name) != nil || name == "" {
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

// brackets finds the end of a JSON object that arrives byte by byte. Whether the object is valid is
// not its concern, but it refuses bytes that occur outside of strings in no JSON text.
type brackets struct {
	depth   int
	quoted  bool // inside a string
	escaped bool // after a backslash
}

// step reads a byte. It returns false if the byte can't be part of an object. The object ends when
// depth is 0 again.
func (b *brackets) step(c byte) bool {
	switch {
	case b.escaped:
		b.escaped = false
	case b.quoted:
		b.escaped, b.quoted = c == '\\', c != '"'
		return c >= ' '
	case c == '"':
		b.quoted = true
	case c == '{' || c == '[':
		b.depth++
		return b.depth <= openai.MaxDepth
	case c == '}' || c == ']':
		b.depth--
	default:
		return strings.IndexByte(spaces+",:+-.0123456789eEtrufalsn", c) >= 0
	}
	return true
}
