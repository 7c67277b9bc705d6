package anthropic

import (
	"slices"
	"strings"
	"time"

	"github.com/coppice-llm/coppice/internal/jsonbody"
	"github.com/coppice-llm/coppice/tokenizer/chat"
)

// systemPrompt reads system: a text, or blocks of text.
func (r *reading) systemPrompt(v value) {
	m := chat.Message{Role: "system"}
	if r.system = nil; v.Raw[0] == '"' {
		m.Content = r.Text(v)
	} else {
		for i, e := range r.List(v, "a string or an array of blocks") {
			if i == maxBlocks {
				r.tooMany(v, maxBlocks, "blocks")
			}
			at := len(r.Kept)
			r.systemBlock(e, &m)
			r.Kept = r.Kept[:at]
		}
	}
	if m.Content != "" || m.Parts != nil {
		r.system = []chat.Message{m}
	}
}

func (r *reading) systemBlock(v value, m *chat.Message) {
	b := r.block(v)
	switch {
	case b.kind == "text" && !r.keepNonces && isNonce(b.text):
		r.Stripped++
	case b.kind == "text":
		m.Parts = append(m.Parts, chat.Part{Type: "text", Text: b.text})
		r.mark(b, mark{system: true, parts: len(m.Parts)})
	case b.kind != "":
		r.Fail(v, "invalid_value", "%s has the type %q, want text", v, jsonbody.Clip(b.kind))
	}
}

// mark notes the block b if it has cache_control.
func (r *reading) mark(b block, m mark) {
	if b.cached {
		m.ttl, m.at = b.ttl, b.at
		r.marks = append(r.marks, m)
	}
}

// tooMany fails, for a server, because the array v has too many elements.
func (r *reading) tooMany(v value, most int, what string) {
	if !r.Lenient {
		r.Fail(v, "invalid_value", "%s has over %d %s", v, most, what)
	}
}

// messages reads the conversation.
func (r *reading) messages(v value) {
	r.turns = nil
	for i, e := range r.List(v, "an array of messages") {
		if i == maxMessages {
			r.tooMany(v, maxMessages, "messages")
		}
		at := len(r.Kept)
		r.message(e)
		r.Kept = r.Kept[:at]
	}
}

// message reads one message. Its blocks become one or more messages of the template: a result of a tool is
// one by itself.
func (r *reading) message(v value) {
	var role string
	var content value
	for _, f := range r.Object(v, "a message, which is an object") {
		switch string(f.Name) {
		case "role":
			role = r.OneOf(f.Value, "user", "assistant", "system")
		case "content":
			content = f.Value
		default:
			r.Unknown("messages[].", f)
		}
	}
	switch {
	case v.Raw[0] != '{':
		return
	case role == "":
		r.Missing(v.At("role"))
		return
	case content.Raw == nil:
		r.Missing(v.At("content"))
		return
	case content.Raw[0] == '"':
		if m := r.last(role); m.Content == "" && m.Parts == nil {
			m.Content = r.Text(content)
		} else {
			r.say(role, r.Text(content))
		}
		return
	}
	r.last(role)
	for i, e := range r.List(content, "a string or an array of blocks") {
		if i == maxBlocks {
			r.tooMany(content, maxBlocks, "blocks")
		}
		at := len(r.Kept)
		r.messageBlock(e, role)
		r.Kept = r.Kept[:at]
	}
}

// last returns the last message, which is one of this role: consecutive messages of a role are one.
func (r *reading) last(role string) *chat.Message {
	if n := len(r.turns); n == 0 || r.turns[n-1].Role != role {
		r.turns = append(r.turns, chat.Message{Role: role})
	}
	return &r.turns[len(r.turns)-1]
}

// say adds a part to the last message. The parts are joined at the end.
func (r *reading) say(role, text string) *chat.Message {
	m := r.last(role)
	if m.Content != "" {
		m.Parts = append(m.Parts, chat.Part{Type: "text", Text: m.Content})
		m.Content = ""
	}
	m.Parts = append(m.Parts, chat.Part{Type: "text", Text: text})
	return m
}

// join sets the content of a message with parts.
func join(m *chat.Message) {
	if m.Parts == nil {
		return
	}
	texts := make([]string, len(m.Parts))
	for i := range m.Parts {
		texts[i] = m.Parts[i].Text
	}
	m.Content = strings.Join(texts, "\n")
}

// joinedBytes returns the length of the content of m up to the end of its first parts.
func joinedBytes(m *chat.Message, parts int) int {
	if parts >= len(m.Parts) {
		return len(m.Content)
	}
	n := 0
	for _, p := range m.Parts[:parts] {
		n += len(p.Text) + 1
	}
	return max(n-1, 0)
}

// messageBlock reads a block of a message of this role.
func (r *reading) messageBlock(v value, role string) {
	b := r.block(v)
	switch {
	case b.kind == "" || b.kind == "redacted_thinking": // the latter is for another server's model
	case b.kind == "text" && b.text == "":
	case b.kind == "text":
		r.say(role, b.text)
	case b.kind == "thinking" && role == "assistant":
		m := r.last(role)
		if m.Reasoning != "" {
			m.Reasoning += "\n"
		}
		m.Reasoning += b.text
	case b.kind == "tool_use" && role == "assistant":
		m := r.last(role)
		m.ToolCalls = append(m.ToolCalls, b.call)
	case b.kind == "tool_result" && role == "user":
		if n := len(r.turns); blank(&r.turns[n-1]) && r.turns[n-1].Role == "user" {
			r.turns = r.turns[:n-1]
		}
		r.turns = append(r.turns, b.result)
	default:
		r.Fail(v, "invalid_value", "%s is a %s block, which a message of the role %s can't have", v, b.kind, role)
	}
	if n := len(r.turns); n > 0 {
		r.mark(b, mark{message: n - 1, parts: max(len(r.turns[n-1].Parts), 1)})
	}
}

// block is a content block. kind is its type, "" if it could not be read.
type block struct {
	kind   string
	at     value
	text   string // of text and thinking
	call   chat.ToolCall
	result chat.Message
	failed bool // the result is an error
	cached bool // it has cache_control
	ttl    time.Duration
}

// blockFields lists the fields of a kind of block, besides type and cache_control.
var blockFields = map[string][]string{
	"text": {"text"}, "thinking": {"thinking"}, "redacted_thinking": {"data"},
	"tool_use": {"id", "name", "input"}, "tool_result": {"tool_use_id", "content", "is_error"},
}

// optional are the fields of blocks that need not be given.
var optional = map[string]bool{"content": true, "is_error": true, "data": true}

// block reads a block.
func (r *reading) block(v value) (b block) {
	all := r.Object(v, "a block, which is an object")
	if v.Raw[0] != '{' {
		return b
	}
	for _, f := range all { // the type first: the other fields depend on it
		if string(f.Name) == "type" {
			b.kind = r.Text(f.Value)
		}
	}
	known, ok := blockFields[b.kind]
	switch {
	case b.kind == "":
		r.Missing(v.At("type"))
		return b
	case !ok:
		r.Fail(v, "unsupported_value", "%s has the type %q, which is not supported%s", v, jsonbody.Clip(b.kind), instead(b.kind))
		return block{kind: "text", text: v.Placeholder(), at: v}
	}
	b.at, b.result.Role = v, "tool"
	for _, f := range all {
		name := string(f.Name)
		switch {
		case name == "type":
		case name == "cache_control":
			b.ttl, b.cached = r.ttl(f.Value)
		case slices.Contains(known, name):
			r.blockField(&b, name, f.Value)
		default:
			r.Unknown("messages[].content[].", f)
		}
	}
	for _, name := range known {
		if !slices.ContainsFunc(all, func(f jsonbody.Field) bool { return string(f.Name) == name }) && !optional[name] {
			r.Missing(v.At(name))
		}
	}
	if b.failed { // templates have no place for it
		if len(b.result.Parts) > 0 {
			b.result.Parts[0].Text = failure + b.result.Parts[0].Text
		} else {
			b.result.Content = failure + b.result.Content
		}
	}
	return b
}

// failure begins the result of a tool that has failed.
const failure = "Error: "

// instead advises how to do without a kind of block.
func instead(kind string) string {
	switch {
	case kind == "image":
		return ": the model reads no images"
	case kind == "document" || kind == "search_result" || kind == "container_upload":
		return ": give its text as a text block"
	case strings.HasPrefix(kind, "server_tool") || strings.HasPrefix(kind, "mcp_") || strings.HasSuffix(kind, "_tool_result"):
		return ": the server runs no tools"
	}
	return ""
}

func (r *reading) blockField(b *block, name string, v value) {
	switch name {
	case "text", "thinking":
		b.text = r.Text(v)
	case "data":
	case "id":
		b.call.ID = r.Text(v)
	case "name":
		b.call.Name = r.Text(v)
	case "input":
		if v.Raw[0] != '{' {
			r.Want(v, "an object")
			return
		}
		b.call.Arguments = v.Raw
	case "tool_use_id":
		b.result.ToolCallID = r.Text(v)
	case "is_error":
		b.failed = r.Flag(v)
	case "content":
		r.result(&b.result, v)
	}
}

// result reads the content of a tool's result: a text, or blocks of text.
func (r *reading) result(m *chat.Message, v value) {
	if v.Raw[0] == '"' {
		m.Content = r.Text(v)
		return
	}
	for i, e := range r.List(v, "a string or an array of blocks") {
		if i == maxBlocks {
			r.tooMany(v, maxBlocks, "blocks")
		}
		at := len(r.Kept)
		b := r.block(e)
		if r.Kept = r.Kept[:at]; b.kind != "text" && b.kind != "" {
			r.Fail(e, "invalid_value", "%s has the type %q, want text", e, jsonbody.Clip(b.kind))
			b.text = e.Placeholder()
		}
		if b.kind != "" {
			m.Parts = append(m.Parts, chat.Part{Type: "text", Text: b.text})
		}
	}
}
