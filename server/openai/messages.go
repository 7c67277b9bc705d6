package openai

import (
	"strings"

	"github.com/coppice-llm/coppice/tokenizer/chat"
)

// MaxMessages and the like bound the lists of a conversation.
const (
	MaxMessages  = 8192
	MaxParts     = 1024 // of one message's content
	MaxToolCalls = 128  // of one message
	MaxTools     = 128
)

func (r *reading) messages(v value) { r.chat.Messages = r.conversation(v) }

func (d *decoder) conversation(v value) []chat.Message {
	if !d.isList(v, "an array of messages") {
		return nil
	}
	var all []chat.Message
	for i, e := range v.elements() {
		if len(all) == MaxMessages {
			d.fail(v.path, "invalid_value", "%s has over %d messages", v.path, MaxMessages)
		}
		if d.fault != nil {
			return nil
		}
		e.path = v.index(i)
		all = append(all, d.message(e))
	}
	if d.fault == nil && len(all) == 0 {
		d.fail(v.path, "invalid_value", "%s is empty, want at least one message", v.path)
	}
	return all
}

// message reads one turn. The role developer, which OpenAI's newer models have in
// place of system, becomes system: templates that don't know it leave such turns out
// without a word.
func (d *decoder) message(v value) (m chat.Message) {
	m.NoContent = true
	for _, f := range d.object(v, "a message, which is an object") {
		switch f.name {
		case "role":
			if m.Role = d.oneOf(f.value, "system", "developer", "user", "assistant", "tool"); m.Role == "developer" {
				m.Role = "system"
			}
		case "content":
			m.Content, m.NoContent = d.content(f.value), false
		case "name":
			m.Name = d.text(f.value)
		case "reasoning_content", "reasoning":
			m.Reasoning = d.text(f.value)
		case "tool_call_id":
			m.ToolCallID = d.text(f.value)
		case "tool_calls":
			m.ToolCalls = d.toolCalls(f.value)
		case "audio", "function_call", "refusal":
			d.fail(f.path, "unsupported_parameter", "%s is not supported: content and tool_calls are", f.path)
		default:
			d.unknown(f)
		}
		if d.fault != nil {
			return m
		}
	}
	d.checkMessage(v, &m)
	return m
}

func (d *decoder) checkMessage(v value, m *chat.Message) {
	switch {
	case d.fault != nil:
	case m.Role == "":
		d.fail(v.at("role"), "missing_required_parameter", "%s is missing", v.at("role"))
	case m.NoContent && (m.Role != "assistant" || m.ToolCalls == nil):
		d.fail(v.at("content"), "missing_required_parameter", "%s is missing", v.at("content"))
	case m.ToolCalls != nil && m.Role != "assistant":
		d.fail(v.at("tool_calls"), "invalid_value", "%s are the assistant's, this message is of the role %s", v.at("tool_calls"), m.Role)
	case m.ToolCallID == "" && m.Role == "tool":
		d.fail(v.at("tool_call_id"), "missing_required_parameter", "%s is missing: which call does it answer?", v.at("tool_call_id"))
	}
}

// content is a text, or parts that are texts. Those are joined by line breaks, as
// vLLM joins them, for only some templates take parts.
func (d *decoder) content(v value) string {
	if v.raw[0] == '"' {
		return d.text(v)
	}
	if v.raw[0] != '[' {
		d.want(v, "a string or an array of parts")
		return ""
	}
	var texts []string
	for i, e := range v.elements() {
		if len(texts) == MaxParts {
			d.fail(v.path, "invalid_value", "%s has over %d parts", v.path, MaxParts)
		}
		if d.fault != nil {
			return ""
		}
		texts = append(texts, d.part(value{e.raw, v.index(i)}))
	}
	return strings.Join(texts, "\n")
}

func (d *decoder) part(v value) string {
	all := d.object(v, "a part, which is an object")
	kind, text, found := "", "", false
	for _, f := range all { // first what it is: the other fields depend on it
		if f.name == "type" {
			kind = d.text(f.value)
		}
	}
	switch {
	case d.fault != nil:
		return ""
	case kind == "":
		d.fail(v.at("type"), "missing_required_parameter", "%s is missing", v.at("type"))
		return ""
	case kind != "text":
		d.fail(v.path, "unsupported_value", "%s is of the type %q, which is not supported: only text is", v.path, clip(kind))
		return ""
	}
	for _, f := range all {
		switch f.name {
		case "type":
		case "text":
			text, found = d.text(f.value), true
		default:
			d.unknown(f)
		}
	}
	if d.fault == nil && !found {
		d.fail(v.at("text"), "missing_required_parameter", "%s is missing", v.at("text"))
	}
	return text
}
