package toolcall

import (
	"bytes"
	"encoding/json"
	"strings"
)

// calls separates tool calls from the text of an output, which may arrive in pieces of any size.
// A call is
//
//	<tool_call>{"name": "weather", "arguments": {"city": "Paris"}}</tool_call>
//
// with white space between the parts; the closing tag of the last call may be missing. A malformed
// call is given as text. White space next to calls, up to heldSpace bytes, is dropped.
//
// calls delays at most heldSpace bytes of white space and the beginning of a tag. It delays a
// call until the call is complete. Each byte of a call is scanned once.
//
// Source: the chat templates of NousResearch/Hermes-2-Pro and Qwen/Qwen2.5.
type calls struct {
	// exact gives the arguments of a call as they arrive. It is set where a grammar forces the
	// text to be calls of the form that jsonschema.Calls describes.
	exact bool
	only  bool // keep the first call, drop others

	state  place
	held   string // in inText: white space and a possible beginning of a tag
	call   []byte // after that: white space, the opening tag and all after it but arguments that were given
	body   int    // in call: start of the object; in inOpen: end of the opening tag
	end    int    // in call: end of the object
	json   brackets
	count  int    // calls begun so far
	begun  bool   // the arguments of the current call are being given
	said   []byte // bytes to give with the next event
	events []Event
}

// place is the position of the next byte relative to a call.
type place uint8

const (
	inText  place = iota
	inOpen        // after <tool_call>
	inBody        // inside the object
	inClose       // after the object
)

const (
	openTag, closeTag = "<tool_call>", "</tool_call>"
	heldSpace         = 24
)

// next returns the events of text, the next piece of the output. last says that the output has
// ended: next then also returns the events of the delayed bytes. The slice is valid until the next
// call.
func (p *calls) next(text string, last bool) []Event {
	p.events = p.events[:0]
	for text != "" {
		if p.state == inText {
			text = p.plain(text)
		} else {
			text = p.called(text)
		}
	}
	if last {
		p.last()
	}
	p.flush()
	return p.events
}

// last gives the bytes that are still delayed, once the output has ended.
func (p *calls) last() {
	switch {
	case p.exact: // the output ended inside a call or next to one
	case p.state == inClose && p.take():
	case p.state != inText:
		p.said = append(p.said, p.call...)
	case p.count == 0 || trimSpaceLeft(p.held) != "": // not only white space after a call
		p.said = append(p.said, p.held...)
	}
}

// flush turns the bytes in said into an event: text, or arguments.
func (p *calls) flush() {
	if len(p.said) == 0 {
		return
	}
	kind := Text
	if p.begun {
		kind = Arguments
	}
	if kind == Text || !p.dropped() {
		p.events = append(p.events, Event{kind, string(p.said)})
	}
	p.said = p.said[:0]
}

// dropped reports whether the current call is left out.
func (p *calls) dropped() bool { return p.only && p.count > 1 }

// plain reads text outside of calls, up to and including an opening tag. It returns the rest.
func (p *calls) plain(text string) (rest string) {
	text = p.held + text
	tag := strings.Index(text, openTag)
	end := tag // of the text before the tag, or before what may begin one
	if tag < 0 {
		end = len(text) - begins(text, openTag)
	}
	white := len(trimSpaceRight(text[:end]))
	p.said = append(p.said, text[:white]...)
	if tag < 0 {
		p.held = text[white:]
		return ""
	}
	tag += len(openTag)
	p.call = append(p.call[:0], text[white:tag]...)
	p.held, p.state, p.body, p.json = "", inOpen, len(p.call), brackets{}
	return text[tag:]
}

// called reads text after an opening tag, up to the end of the call. It returns the rest. A
// malformed call is given as text; the rest then begins with the byte that breaks the call.
func (p *calls) called(text string) (rest string) {
	for i := range len(text) {
		switch ok := p.step(text[i]); {
		case !ok && p.begun: // events already given can't be taken back
			p.flush()
			p.begun, p.state = false, inText
			return text[i:]
		case !ok:
			p.said = append(p.said, p.call...)
			p.state = inText
			return text[i:]
		case p.state == inText:
			return text[i+1:]
		}
	}
	return ""
}

// step reads a byte after an opening tag. It returns false if the byte breaks the call, and leaves
// the byte out of it.
func (p *calls) step(c byte) bool {
	switch p.state {
	case inOpen:
		begun, ok := p.expect(c, p.body, "{")
		if begun {
			p.body, p.state = len(p.call)-1, inBody
			p.json.step(c)
		}
		return ok
	case inBody:
		return p.within(c)
	}
	ended, ok := p.expect(c, p.end, closeTag)
	if !ended {
		return ok
	}
	if !p.begun && !p.take() {
		p.call = p.call[:len(p.call)-1]
		return false
	}
	p.flush()
	p.begun, p.state = false, inText
	return true
}

// expect reads a byte of white space or of the text want after it; both begin at from in call. done
// reports that want is complete; ok is false if the byte is neither.
func (p *calls) expect(c byte, from int, want string) (done, ok bool) {
	all := append(p.call[from:], c)
	seen := bytes.TrimLeft(all, spaces)
	if len(all)-len(seen) > heldSpace || !strings.HasPrefix(want, string(seen)) {
		return false, false
	}
	p.call = append(p.call, c)
	return string(seen) == want, true
}

// within reads a byte of the call's object.
func (p *calls) within(c byte) bool {
	before := p.json.depth
	if !p.json.step(c) {
		return false
	}
	switch {
	case !p.begun:
		p.call = append(p.call, c)
		if p.exact && p.json.depth == 2 && c == '{' {
			p.begin()
		}
	case max(before, p.json.depth) > 1: // not a bracket of the call's object
		p.said = append(p.said, c)
	}
	if p.json.depth == 0 {
		p.end, p.state = len(p.call), inClose
	}
	return true
}

// begin starts giving the arguments, if the text before them has exactly the forced form.
func (p *calls) begin() {
	const before, between = `{"name": `, `, "arguments": {`
	name, ok := strings.CutPrefix(string(p.call[p.body:]), before)
	name, end := strings.CutSuffix(name, between)
	if !ok || !end || json.Unmarshal([]byte(name), &name) != nil {
		return
	}
	p.flush()
	if p.count++; !p.dropped() {
		p.events = append(p.events, Event{Call, name})
	}
	p.begun = true
	p.said = append(p.said, '{')
}

// take appends the events of a complete call. It returns false, and appends nothing, if the object
// is not a call.
func (p *calls) take() bool {
	var all map[string]json.RawMessage
	var name string
	if json.Unmarshal(p.call[p.body:p.end], &all) != nil || json.Unmarshal(all["name"], &name) != nil || name == "" {
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
	p.flush()
	if p.count++; !p.dropped() {
		p.events = append(p.events, Event{Call, name}, Event{Arguments, arguments})
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
		return b.depth <= maxDepth
	case c == '}' || c == ']':
		b.depth--
	default:
		return strings.IndexByte(spaces+",:+-.0123456789eEtrufalsn", c) >= 0
	}
	return true
}

// maxDepth bounds the nesting of arguments.
const maxDepth = 64
