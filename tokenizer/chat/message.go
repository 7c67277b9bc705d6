package chat

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Message is one turn. Templates see it as a dictionary with the keys role and content, and the
// other keys if they are set.
type Message struct {
	Role    string
	Content string
	// Parts, unless nil, are the content for a template that loops over the parts of a content; other templates get Content.
	// A template gets the texts of a tool as one text, with a line for each part.
	Parts []Part
	// Reasoning is the model's reasoning before the content: reasoning_content.
	Reasoning  string
	ToolCalls  []ToolCall
	ToolCallID string // the call that a tool's turn answers: tool_call_id
	Name       string // name of a tool or of a speaker: name
	// Extra has further keys with JSON values; they replace those above.
	Extra map[string]json.RawMessage
}

// Part is a part of a content: {"type": Type, "text": Text}, without text if it is "".
type Part struct {
	Type, Text string
	Extra      map[string]json.RawMessage // further keys, as in Message
}

// ToolCall is a tool call by the model: {"id": ID, "type": "function", "function": {"name":
// Name, "arguments": Arguments}}.
type ToolCall struct {
	ID, Name string
	// Arguments is JSON: an object, or as in OpenAI's API a string with the text of an object,
	// which templates then see as the object.
	Arguments json.RawMessage
}

// Options has the inputs of a template other than the messages.
type Options struct {
	// AddGenerationPrompt adds the beginning of the model's turn.
	AddGenerationPrompt bool
	// Tools are JSON objects, usually {"type": "function", "function": {...}}. nil becomes None,
	// which many templates distinguish from an empty list. Documents likewise.
	Tools, Documents []json.RawMessage
	// ToolsPrompt selects the treatment of tools, calls and results that the template does not print. Default:
	// AutoTools.
	ToolsPrompt ToolsPrompt
	// Template selects one of several templates by name. "": "tool_use" if there are tools and
	// such a template, else "default".
	Template string
	// Now is the time for strftime_now. With the zero time that function is undefined, and
	// templates that use it fall back to a fixed date or fail.
	Now time.Time
	// MaxBytes bounds the prompt, if it is above 0 and below Limits.OutputBytes. A longer prompt fails
	// with ErrTooLong.
	MaxBytes int
	// Charge, if not nil, is called with the bytes of memory that the rendering is about to use, by the
	// goroutine that renders. They are an upper bound on what it makes, and count again what has become
	// garbage. It is called about once a millisecond. An error ends the rendering, which returns it.
	Charge func(bytes int) error
	// Variables are further variables of the template, as JSON, such as enable_thinking and
	// date_string.
	Variables map[string]json.RawMessage
}

// variables sets the variables that a template can see. parts says that it loops over the parts of a content.
func (o *Options) variables(globals map[string]any, messages []Message, parts bool) error {
	var err error
	if globals["messages"], err = listed("message", messages, func(m *Message) (any, error) { return m.value(parts) }); err != nil {
		return err
	}
	globals["add_generation_prompt"] = o.AddGenerationPrompt
	if globals["tools"], err = decodeAll("tool", o.Tools); err != nil {
		return err
	}
	if globals["documents"], err = decodeAll("document", o.Documents); err != nil {
		return err
	}
	if !o.Now.IsZero() {
		globals["strftime_now"] = strftimeAt(o.Now)
	}
	for _, name := range slices.Sorted(maps.Keys(o.Variables)) {
		if globals[name], err = decode("variable "+name, o.Variables[name]); err != nil {
			return err
		}
	}
	return nil
}

func decodeAll(what string, all []json.RawMessage) (any, error) {
	if all == nil {
		return nil, nil
	}
	out := &list{}
	for i, data := range all {
		v, err := decode(fmt.Sprintf("%s %d", what, i), data)
		if err != nil {
			return nil, err
		}
		out.items = append(out.items, v)
	}
	return out, nil
}

// value returns what a template sees of m. parts says that the template loops over the parts of a content.
func (m *Message) value(parts bool) (any, error) {
	d := newDict()
	d.set("role", m.Role)
	d.set(contentKey, m.Content)
	text, ok := joined(m.Parts)
	switch {
	case !parts || m.Parts == nil:
	case m.Role == "tool" && ok:
		d.set(contentKey, text) // as in vLLM (_parse_chat_message_content in vllm/renderers/chat_utils.py, 0.32)
	default:
		all, err := listed("part", m.Parts, (*Part).value)
		if err != nil {
			return nil, err
		}
		d.set(contentKey, all)
	}
	for _, f := range []struct{ key, value string }{
		{"reasoning_content", m.Reasoning}, {"tool_call_id", m.ToolCallID}, {"name", m.Name},
	} {
		if f.value != "" {
			d.set(f.key, f.value)
		}
	}
	if m.ToolCalls != nil {
		calls, err := listed("tool call", m.ToolCalls, (*ToolCall).value)
		if err != nil {
			return nil, err
		}
		d.set("tool_calls", calls)
	}
	return d, d.addAll(m.Extra)
}

// joined returns the texts of parts, a line each. It returns false if a part is no text.
func joined(parts []Part) (string, bool) {
	var texts []string
	for _, p := range parts {
		if p.Type != "text" {
			return "", false
		}
		texts = append(texts, p.Text)
	}
	return strings.Join(texts, "\n"), true
}

// listed returns a list of the values of all. what names one of them in errors.
func listed[T any](what string, all []T, value func(*T) (any, error)) (any, error) {
	out := &list{}
	for i := range all {
		v, err := value(&all[i])
		if err != nil {
			return nil, fmt.Errorf("%s %d: %w", what, i, err)
		}
		out.items = append(out.items, v)
	}
	return out, nil
}

func (p *Part) value() (any, error) {
	d := newDict()
	d.set("type", p.Type)
	if p.Text != "" || p.Type == "text" {
		d.set("text", p.Text)
	}
	return d, d.addAll(p.Extra)
}

func (c *ToolCall) value() (any, error) {
	d, f := newDict(), newDict()
	if c.ID != "" {
		d.set("id", c.ID)
	}
	d.set("type", "function")
	f.set("name", c.Name)
	d.set("function", f)
	arguments := any(newDict())
	if c.Arguments != nil {
		var err error
		if arguments, err = decode("arguments", c.Arguments); err != nil {
			return nil, err
		}
	}
	if text, ok := arguments.(string); ok {
		if inner, err := decodeJSON([]byte(text)); err == nil {
			if object, ok := inner.(*dict); ok {
				arguments = object
			}
		}
	}
	f.set("arguments", arguments)
	return d, nil
}

// addAll sets the keys of extra in ascending order.
func (d *dict) addAll(extra map[string]json.RawMessage) error {
	for _, key := range slices.Sorted(maps.Keys(extra)) {
		v, err := decode("key "+key, extra[key])
		if err != nil {
			return err
		}
		d.set(key, v)
	}
	return nil
}
