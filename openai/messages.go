package openai

import (
	"fmt"
	"strings"

	"github.com/zeebo/xxh3"

	"github.com/coppice-llm/coppice/tokenizer/chat"
)

// Limits of the lists of a conversation.
const (
	maxMessages  = 8192
	maxParts     = 1024 // per message content
	maxToolCalls = 128  // per message
	maxTools     = 128
)

var roles = []string{"system", "developer", "user", "assistant", "tool"}

func (r *reading) messages(v value) {
	s := scanner{b: v.raw}
	r.chat.Messages = r.conversationAt(&s, v.top, nil)
}

// conversationAt appends the messages of the array at s to all, and moves s past the array. top is
// the whole body, for the paths in errors. Each message is scanned once.
func (d *decoder) conversationAt(s *scanner, top []byte, all []chat.Message) []chat.Message {
	first := s.next()
	v := value{s.b[s.at:], top}
	if first != '[' {
		if s.skip(); first != 'n' {
			d.want(v, "an array of messages")
		}
		return all
	}
	s.at++
	for i := 0; s.more(i, ']'); i++ {
		if len(all) == maxMessages && !d.lenient {
			d.fail(v, "invalid_value", "%s has over %d messages", v, maxMessages)
		}
		mark := len(d.kept)
		all = append(all, d.messageAt(s, top))
		d.kept = d.kept[:mark]
	}
	if len(all) == 0 {
		d.fail(v, "invalid_value", "%s is empty, want at least one message", v)
	}
	return all
}

// messageAt reads the message at s and moves s past it. top is the whole body, for the paths in
// errors. The role developer, which replaces system in OpenAI's newer models, becomes system,
// because templates that don't know developer omit such messages silently.
func (d *decoder) messageAt(s *scanner, top []byte) (m chat.Message) {
	v := value{s.b[s.at:], top}
	if s.next() != '{' {
		d.want(v, "a message, which is an object")
		s.skip()
		return m
	}
	said, refusal := false, ""
	for _, f := range d.members(s, v, "", nil) {
		switch string(f.name) {
		case "role":
			m.Role = d.role(f.value)
		case "content":
			m.Content, m.Parts = d.content(f.value)
			said = true
		case "name":
			m.Name = d.text(f.value)
		case "reasoning_content", "reasoning":
			m.Reasoning = d.text(f.value)
		case "tool_call_id":
			m.ToolCallID = d.text(f.value)
		case "tool_calls":
			m.ToolCalls = d.toolCalls(f.value)
		case "refusal":
			refusal = d.text(f.value)
		case "audio", "function_call":
			if !d.lenient {
				d.fail(f, Unsupported, "%s is not supported: content and tool_calls are", f)
			}
		default:
			d.unknown("messages[].", f)
		}
	}
	if m.Content == "" { // an earlier answer of the model, if it refused
		m.Content = refusal
	}
	d.checkMessage(v, &m, said)
	return m
}

// role reads a string that must be one of roles. For a proxy other names are allowed too, because
// a worker may know them. It returns "system" for "developer".
func (d *decoder) role(v value) string {
	role, ok := d.among(v, roles)
	switch {
	case role == "function" && !d.lenient:
		d.fail(v, "invalid_value", "%s is %q, the older form of tools: use the role tool with tool_call_id, and tool_calls in place of function_call", v, role)
	case !ok && !d.lenient:
		d.oneOf(v, roles...)
	case role == "developer":
		return "system"
	}
	return role
}

// checkMessage fails if the fields of m, a message read from v, do not fit its role. For a proxy it
// only checks that there is a role. said reports that m has a content, which only the messages of a user and of the system need: clients
// send null beside calls, for an empty answer and for the result of a tool that returns nothing.
func (d *decoder) checkMessage(v value, m *chat.Message, said bool) {
	switch {
	case m.Role == "":
		d.missing(v.at("role"))
	case d.lenient: // the worker judges the rest
	case !said && m.Role != "assistant" && m.Role != "tool":
		d.missing(v.at("content"))
	case m.ToolCalls != nil && m.Role != "assistant":
		at := v.at("tool_calls")
		d.fail(at, "invalid_value", "%s are for the role assistant, but this message has the role %s", at, m.Role)
	case m.ToolCallID == "" && m.Role == "tool":
		d.missing(v.at("tool_call_id"))
	}
}

// content reads a text, or parts that are texts. text has the parts joined by newlines, as in vLLM, since
// only some templates accept parts; parts is nil for a text.
func (d *decoder) content(v value) (text string, parts []chat.Part) {
	switch v.raw[0] {
	case '"':
		return d.text(v), nil
	case '[':
	default:
		d.want(v, "a string or an array of parts")
		return placeholder(v), nil
	}
	var texts []string
	for _, e := range d.list(v, "") {
		if len(texts) == maxParts && !d.lenient {
			d.fail(v, "invalid_value", "%s has over %d parts", v, maxParts)
		}
		mark := len(d.kept)
		text, ok := d.part(e)
		if d.kept = d.kept[:mark]; !ok {
			text = placeholder(e)
		}
		texts, parts = append(texts, text), append(parts, chat.Part{Type: "text", Text: text})
	}
	return strings.Join(texts, "\n"), parts
}

// part returns the text of the content part v, a text or a refusal; ok is false if v is neither. A proxy also
// accepts strings, and the names of text parts in OpenAI's Responses API, as vLLM does.
func (d *decoder) part(v value) (text string, ok bool) {
	if d.lenient && v.raw[0] == '"' {
		return d.text(v), true
	}
	all := d.object(v, "a part, which is an object")
	var kind string
	for _, f := range all { // the type first: the other fields depend on it
		if string(f.name) == "type" {
			kind = d.again(f.value, "text")
		}
	}
	switch {
	case v.raw[0] != '{':
		return "", false
	case kind == "":
		d.missing(v.at("type"))
		return "", false
	case kind == "text", kind == "refusal", d.lenient && (kind == "input_text" || kind == "output_text"):
	default:
		d.fail(v, "unsupported_value", "%s has the type %q; only text is supported", v, clip(kind))
		return "", false
	}
	key := "text"
	if kind == "refusal" {
		key = kind
	}
	for _, f := range all {
		switch string(f.name) {
		case "type":
		case key:
			text, ok = d.text(f.value), f.raw[0] == '"'
		default:
			d.unknown("messages[].content[].", f)
		}
	}
	if !ok {
		d.missing(v.at(key))
	}
	return text, ok
}

// placeholder returns a text that stands for v, a value that is not text. Equal values get equal
// texts, and different values different ones (except for hash collisions), so that prompts that
// differ only there have different hashes.
func placeholder(v value) string {
	return fmt.Sprintf("<|no text %016x|>", xxh3.Hash(v.raw))
}

// toolCalls reads the calls in an earlier turn of the assistant.
func (d *decoder) toolCalls(v value) []chat.ToolCall {
	var all []chat.ToolCall
	for _, raw := range d.objects(v, maxToolCalls) {
		at, mark := value{raw, v.top}, len(d.kept)
		var call chat.ToolCall
		for _, f := range d.object(at, "an object") {
			switch string(f.name) {
			case "id":
				call.ID = d.text(f.value)
			case "type":
				d.oneOf(f.value, "function")
			case "index": // copied from a stream's delta by some clients
				d.integer(f.value, 0, maxToolCalls)
			case "function":
				d.called(f.value, &call)
			default:
				d.unknown("messages[].tool_calls[].", f)
			}
		}
		if call.Name == "" {
			d.missing(at.at("function.name"))
		}
		all, d.kept = append(all, call), d.kept[:mark]
	}
	return all
}

// called reads the function of a tool call. Its arguments stay raw JSON: a string that contains
// an object.
func (d *decoder) called(v value, call *chat.ToolCall) {
	for _, f := range d.object(v, "an object") {
		switch string(f.name) {
		case "name":
			call.Name = d.text(f.value)
		case "arguments":
			if d.lenient || d.isText(f.value) {
				call.Arguments = f.raw
			}
		default:
			d.unknown("messages[].tool_calls[].function.", f)
		}
	}
}
