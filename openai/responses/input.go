package responses

import (
	"strings"

	"github.com/coppice-llm/coppice/conversation"
	"github.com/coppice-llm/coppice/internal/jsontext"
	"github.com/coppice-llm/coppice/tokenizer/chat"
)

// Limits of the lists of a conversation.
const (
	maxItems = 32768
	maxParts = 1024 // per content
)

// thread makes messages of items. What the assistant says in one turn, its reasoning, text and calls, are items of their own,
// and one message for the template.
type thread struct {
	all  []chat.Message
	open bool // the last message is the assistant's and may take more items
}

// add adds a message of its own.
func (t *thread) add(m chat.Message) { t.all, t.open = append(t.all, m), false }

// said returns the assistant's message that takes the next item. fits reports whether a message with an item has room for it.
func (t *thread) said(fits func(m *chat.Message) bool) *chat.Message {
	if !t.open || !fits(&t.all[len(t.all)-1]) {
		t.add(chat.Message{Role: "assistant"})
		t.open = true
	}
	return &t.all[len(t.all)-1]
}

// item is an input item as it is stored.
type item struct {
	raw     []byte // the object
	content []byte // of a message whose content is a string: that string
	kind    string
	role    string
	named   bool // it has an id
	typed   bool // it has a type
}

// appendTo writes the item, with a type and an id, and with parts for content.
func (it *item) appendTo(dst []byte, id string) []byte {
	if it.content != nil {
		part := "input_text"
		if it.role == "assistant" {
			part = "output_text"
		}
		dst = jsontext.AppendString(append(dst, `{"type":"message","status":"completed","id":`...), id)
		dst = jsontext.AppendString(append(dst, `,"role":`...), it.role)
		dst = append(append(append(dst, `,"content":[{"type":"`...), part...), `","text":`...)
		dst = append(dst, it.content...)
		if it.role == "assistant" {
			dst = append(dst, `,"annotations":[]`...)
		}
		return append(dst, `}]}`...)
	}
	dst = append(dst, it.raw[:len(it.raw)-1]...) // what is added comes last, since an id may be null
	if !it.typed {
		dst = jsontext.AppendString(append(dst, `,"type":`...), it.kind)
	}
	if !it.named {
		dst = jsontext.AppendString(append(dst, `,"id":`...), id)
	}
	return append(dst, '}')
}

// readInput reads a text of the user, or a list of items.
func (r *reading) readInput(v value) {
	if v.Raw[0] == '"' {
		r.thread.add(chat.Message{Role: "user", Content: r.Text(v)})
		r.store(item{content: v.Raw, role: "user"})
		return
	}
	r.readItems(v)
}

// store takes an item of the request itself into what is stored.
func (r *reading) store(it item) {
	if r.keeps && !r.Lenient {
		r.ask.items = append(r.ask.items, it)
	}
}

func (r *reading) readItems(v value) {
	for i, e := range r.List(v, "a string or an array of items") {
		if i == maxItems && !r.Lenient {
			r.Fail(v, "invalid_value", "%s has over %d items", v, maxItems)
		}
		mark := len(r.Kept)
		r.item(e)
		r.Kept = r.Kept[:mark]
	}
}

// itemValues are the members of an item, by name.
type itemValues map[string]value

// item reads an item of the conversation.
func (r *reading) item(v value) {
	list, all := r.Object(v, "an item, which is an object"), itemValues{}
	for _, f := range list {
		all[string(f.Name)] = f.Value
	}
	it := item{raw: v.Raw, kind: r.kindOf(v, all)}
	for _, f := range list {
		if it.kind != "" && !itemFields[it.kind][string(f.Name)] {
			r.Unknown("input[].", f)
		}
	}
	_, it.named = all["id"]
	_, it.typed = all["type"]
	switch it.kind {
	case "message":
		r.message(v, all, &it)
	case "function_call":
		r.call(v, all)
	case "function_call_output":
		r.result(v, all)
	case "reasoning":
		r.thought(v, all)
	case "item_reference":
		r.reference(v, all)
		return
	case "":
		return
	}
	r.store(it)
}

// itemFields are the members that items of each kind may have.
var itemFields = map[string]map[string]bool{
	"message":              {"type": true, "id": true, "role": true, "content": true, "status": true, "phase": true},
	"function_call":        {"type": true, "id": true, "call_id": true, "name": true, "arguments": true, "status": true, "caller": true, "namespace": true},
	"function_call_output": {"type": true, "id": true, "call_id": true, "output": true, "name": true, "status": true, "caller": true, "namespace": true},
	"reasoning":            {"type": true, "id": true, "summary": true, "content": true, "encrypted_content": true, "status": true},
	"item_reference":       {"type": true, "id": true},
}

// kindOf returns the type of an item with these members. A message needs none, nor does a reference. It is "" for a type that
// is not supported, which a proxy takes for a doubt.
func (r *reading) kindOf(v value, all itemValues) (kind string) {
	at, ok := all["type"]
	switch {
	case ok:
		kind = r.Text(at)
	case all["role"].Raw != nil:
		kind = "message"
	case all["id"].Raw != nil && len(all) == 1:
		kind = "item_reference"
	case v.Raw[0] == '{':
		r.Missing(v.At("type"))
		return ""
	}
	if itemFields[kind] == nil {
		if v.Raw[0] == '{' {
			r.Fail(at, conversation.Unsupported, "%s is %q, want a message, reasoning, function_call, function_call_output or item_reference: the server runs no tools itself", v.At("type"), kind)
		}
		if r.Lenient {
			r.thread.add(chat.Message{Role: "user", Content: v.Placeholder()})
		}
		return ""
	}
	return kind
}

// message reads {"role", "content"}.
func (r *reading) message(v value, all itemValues, it *item) {
	role := "user"
	if at, ok := all["role"]; ok {
		role = r.OneOf(at, "user", "assistant", "system", "developer")
	} else {
		r.Missing(v.At("role"))
	}
	content, ok := all["content"]
	if !ok {
		r.Missing(v.At("content"))
		return
	}
	if it.role = role; content.Raw[0] == '"' && !it.named {
		it.content = content.Raw
	}
	text, parts := r.content(content)
	switch role {
	case "assistant":
		m := r.thread.said(func(m *chat.Message) bool { return m.Content == "" && m.ToolCalls == nil })
		m.Content, m.Parts = text, parts
	case "developer": // as in chat completions: templates that don't know it omit such messages
		role = "system"
		fallthrough
	default:
		r.thread.add(chat.Message{Role: role, Content: text, Parts: parts})
	}
}

// content reads a text, or parts that are texts. Several are joined by newlines, as in chat completions; parts is nil for one.
func (r *reading) content(v value) (text string, parts []chat.Part) {
	if v.Raw[0] == '"' {
		return r.Text(v), nil
	}
	var texts []string
	for i, e := range r.List(v, "a string or an array of parts") {
		if i == maxParts && !r.Lenient {
			r.Fail(v, "invalid_value", "%s has over %d parts", v, maxParts)
		}
		mark := len(r.Kept)
		texts = append(texts, r.part(e))
		r.Kept = r.Kept[:mark]
	}
	if len(texts) > 1 {
		for _, t := range texts {
			parts = append(parts, chat.Part{Type: "text", Text: t})
		}
	}
	return strings.Join(texts, "\n"), parts
}

// part returns the text of a part.
func (r *reading) part(v value) string {
	var kind string
	var at, text value
	all := r.Object(v, "a part, which is an object")
	for _, f := range all {
		if string(f.Name) == "type" {
			at, kind = f.Value, r.Text(f.Value)
		}
	}
	key := "text"
	switch kind {
	case "input_text", "output_text", "text", "summary_text", "reasoning_text":
	case "refusal":
		key = "refusal"
	case "":
		if v.Raw[0] == '{' {
			r.Missing(v.At("type"))
		}
		return v.Placeholder()
	default:
		r.Fail(at, conversation.Unsupported, "%s is %q: the model reads text only", v.At("type"), kind)
		return v.Placeholder()
	}
	for _, f := range all {
		switch string(f.Name) {
		case "type":
		case key:
			text = f.Value
		case "annotations", "logprobs", "parsed": // of an answer that is sent back
		default:
			r.Unknown("input[].content[].", f)
		}
	}
	if text.Raw == nil {
		r.Missing(v.At(key))
		return ""
	}
	return r.Text(text)
}

// need returns the text of a member that an item must have.
func (r *reading) need(v value, all itemValues, name string) string {
	at, ok := all[name]
	if !ok {
		r.Missing(v.At(name))
		return ""
	}
	return r.Text(at)
}

// call reads a call by the assistant: {"call_id", "name", "arguments"}.
func (r *reading) call(v value, all itemValues) {
	call := chat.ToolCall{ID: r.need(v, all, "call_id"), Name: r.need(v, all, "name")}
	if r.need(v, all, "arguments"); all["arguments"].Raw != nil {
		call.Arguments = all["arguments"].Raw
	}
	m := r.thread.said(func(*chat.Message) bool { return true })
	m.ToolCalls = append(m.ToolCalls, call)
}

// result reads what a tool has returned: {"call_id", "output"}.
func (r *reading) result(v value, all itemValues) {
	m := chat.Message{Role: "tool", ToolCallID: r.need(v, all, "call_id")}
	if out, ok := all["output"]; ok {
		m.Content, m.Parts = r.content(out)
	} else {
		r.Missing(v.At("output"))
	}
	if name, ok := all["name"]; ok {
		m.Name = r.Text(name)
	}
	r.thread.add(m)
}

// thought reads earlier reasoning: its content, else its summary. Encrypted content can't be read, and is left out.
func (r *reading) thought(v value, all itemValues) {
	text := ""
	for _, name := range []string{"summary", "content"} {
		if at, ok := all[name]; ok {
			if s, _ := r.content(at); s != "" {
				text = s
			}
		}
	}
	if text == "" {
		return
	}
	m := r.thread.said(func(m *chat.Message) bool { return m.Content == "" && m.ToolCalls == nil && m.Reasoning == "" })
	m.Reasoning = text
}

// reference reads the stored item that v refers to.
func (r *reading) reference(v value, all itemValues) {
	id := r.need(v, all, "id")
	if r.Lenient {
		r.names = id
		r.Fail(v, "", "%s is a reference: the worker has the item", v)
		return
	}
	at := all["id"]
	of := ResponseOf(id)
	if of == "" {
		r.Fail(at, "item_not_found", "%s is %q, but no item with that id is stored", v.At("id"), id)
	}
	s := r.stored(at, of)
	raw := s.item(id)
	if raw == nil {
		r.Fail(at, "item_not_found", "%s is %q, but no item with that id is stored", v.At("id"), id)
	}
	top := s.Input
	if len(s.Response) > 0 && cap(raw) <= cap(s.Response) {
		top = s.Response
	}
	r.item(value{Raw: raw, Top: top})
}
