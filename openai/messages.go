package openai

import (
	"strings"

	"github.com/coppice-llm/coppice/conversation"
	"github.com/coppice-llm/coppice/internal/jsonbody"
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
	s := scanner{B: v.Raw}
	r.chat.Messages = r.conversationAt(&s, v.Top, nil)
}

// conversationAt appends the messages of the array at s to all, and moves s past the array. top is
// the whole body, for the paths in errors. Each message is scanned once.
func (d *decoder) conversationAt(s *scanner, top []byte, all []chat.Message) []chat.Message {
	first := s.Next()
	v := value{Raw: s.B[s.At:], Top: top}
	if first != '[' {
		if s.Skip(); first != 'n' {
			d.Want(v, "an array of messages")
		}
		return all
	}
	s.At++
	for i := 0; s.More(i, ']'); i++ {
		if len(all) == maxMessages && !d.Lenient {
			d.Fail(v, "invalid_value", "%s has over %d messages", v, maxMessages)
		}
		mark := len(d.Kept)
		all = append(all, d.messageAt(s, top))
		d.Kept = d.Kept[:mark]
	}
	if len(all) == 0 {
		d.Fail(v, "invalid_value", "%s is empty, want at least one message", v)
	}
	return all
}

// messageAt reads the message at s and moves s past it. top is the whole body, for the paths in
// errors. The role developer, which replaces system in OpenAI's newer models, becomes system,
// because templates that don't know developer omit such messages silently.
func (d *decoder) messageAt(s *scanner, top []byte) (m chat.Message) {
	v := value{Raw: s.B[s.At:], Top: top}
	if s.Next() != '{' {
		d.Want(v, "a message, which is an object")
		s.Skip()
		return m
	}
	said, refusal := false, ""
	for _, f := range d.Members(s, v, "", nil) {
		switch string(f.Name) {
		case "role":
			m.Role = d.role(f.Value)
		case "content":
			m.Content, m.Parts = d.content(f.Value)
			said = true
		case "name":
			m.Name = d.Text(f.Value)
		case "reasoning_content", "reasoning":
			m.Reasoning = d.Text(f.Value)
		case "tool_call_id":
			m.ToolCallID = d.Text(f.Value)
		case "tool_calls":
			m.ToolCalls = d.toolCalls(f.Value)
		case "refusal":
			refusal = d.Text(f.Value)
		case "audio", "function_call":
			if !d.Lenient {
				d.Fail(f, conversation.Unsupported, "%s is not supported: content and tool_calls are", f)
			}
		default:
			d.Unknown("messages[].", f)
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
	role, ok := d.Among(v, roles)
	switch {
	case role == "function" && !d.Lenient:
		d.Fail(v, "invalid_value", "%s is %q, the older form of tools: use the role tool with tool_call_id, and tool_calls in place of function_call", v, role)
	case !ok && !d.Lenient:
		d.OneOf(v, roles...)
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
		d.Missing(v.At("role"))
	case d.Lenient: // the worker judges the rest
	case !said && m.Role != "assistant" && m.Role != "tool":
		d.Missing(v.At("content"))
	case m.ToolCalls != nil && m.Role != "assistant":
		at := v.At("tool_calls")
		d.Fail(at, "invalid_value", "%s are for the role assistant, but this message has the role %s", at, m.Role)
	case m.ToolCallID == "" && m.Role == "tool":
		d.Missing(v.At("tool_call_id"))
	}
}

// content reads a text, or parts that are texts. text has the parts joined by newlines, without empty ones, as in vLLM
// (_parse_chat_message_content_parts), since only some templates accept parts; parts is nil for a text.
func (d *decoder) content(v value) (text string, parts []chat.Part) {
	switch v.Raw[0] {
	case '"':
		return d.Text(v), nil
	case '[':
	default:
		d.Want(v, "a string or an array of parts")
		return v.Placeholder(), nil
	}
	var texts []string
	for _, e := range d.List(v, "") {
		if len(parts) == maxParts && !d.Lenient {
			d.Fail(v, "invalid_value", "%s has over %d parts", v, maxParts)
		}
		mark := len(d.Kept)
		text, ok := d.part(e)
		if d.Kept = d.Kept[:mark]; !ok {
			text = e.Placeholder()
		}
		if parts = append(parts, chat.Part{Type: "text", Text: text}); text != "" {
			texts = append(texts, text)
		}
	}
	return strings.Join(texts, "\n"), parts
}

// part returns the text of the content part v, a text or a refusal; ok is false if v is neither. A proxy also
// accepts strings, and the names of text parts in OpenAI's Responses API, as vLLM does.
func (d *decoder) part(v value) (text string, ok bool) {
	if d.Lenient && v.Raw[0] == '"' {
		return d.Text(v), true
	}
	all := d.Object(v, "a part, which is an object")
	var kind string
	for _, f := range all { // the type first: the other fields depend on it
		if string(f.Name) == "type" {
			kind = d.Again(f.Value, "text")
		}
	}
	switch {
	case v.Raw[0] != '{':
		return "", false
	case kind == "":
		d.Missing(v.At("type"))
		return "", false
	case kind == "text", kind == "refusal", d.Lenient && (kind == "input_text" || kind == "output_text"):
	default:
		d.Fail(v, "unsupported_value", "%s has the type %q; only text is supported", v, jsonbody.Clip(kind))
		return "", false
	}
	key := "text"
	if kind == "refusal" {
		key = kind
	}
	for _, f := range all {
		switch string(f.Name) {
		case "type":
		case key:
			text, ok = d.Text(f.Value), f.Raw[0] == '"'
		default:
			d.Unknown("messages[].content[].", f)
		}
	}
	if !ok {
		d.Missing(v.At(key))
	}
	return text, ok
}

// toolCalls reads the calls in an earlier turn of the assistant.
func (d *decoder) toolCalls(v value) []chat.ToolCall {
	var all []chat.ToolCall
	for _, raw := range d.Objects(v, maxToolCalls) {
		at, mark := value{Raw: raw, Top: v.Top}, len(d.Kept)
		var call chat.ToolCall
		for _, f := range d.Object(at, "an object") {
			switch string(f.Name) {
			case "id":
				call.ID = d.Text(f.Value)
			case "type":
				d.OneOf(f.Value, "function")
			case "index": // copied from a stream's delta by some clients
				d.Integer(f.Value, 0, maxToolCalls)
			case "function":
				d.called(f.Value, &call)
			default:
				d.Unknown("messages[].tool_calls[].", f)
			}
		}
		if call.Name == "" {
			d.Missing(at.At("function.name"))
		}
		all, d.Kept = append(all, call), d.Kept[:mark]
	}
	return all
}

// called reads the function of a tool call. Its arguments stay raw JSON: a string that contains
// an object.
func (d *decoder) called(v value, call *chat.ToolCall) {
	for _, f := range d.Object(v, "an object") {
		switch string(f.Name) {
		case "name":
			call.Name = d.Text(f.Value)
		case "arguments":
			if d.Lenient || d.IsText(f.Value) {
				call.Arguments = f.Raw
			}
		default:
			d.Unknown("messages[].tool_calls[].function.", f)
		}
	}
}
