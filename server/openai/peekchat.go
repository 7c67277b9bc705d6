package openai

import (
	"encoding/json"
	"strings"

	"github.com/zeebo/xxh3"

	"github.com/coppice-llm/coppice/tokenizer/chat"
)

// CutFinal is [Chat.CutFinal].
func (p *Peeked) CutFinal(rendered string) (string, error) {
	if !p.ContinueFinal || len(p.Messages) == 0 {
		return rendered, nil
	}
	c := Chat{Messages: p.Messages, ContinueFinal: true}
	return c.CutFinal(rendered)
}

// conversation reads what is beside the messages for the template.
func (p *Peeked) conversation() {
	o := &p.Options
	o.AddGenerationPrompt = !p.given[fieldGenerate].is('f')
	if p.given[fieldContinue].is('t') {
		p.ContinueFinal, o.AddGenerationPrompt = true, false
	}
	if len(p.Messages) == 0 {
		p.doubt("there are no messages")
	} else if p.ContinueFinal && strings.TrimSpace(p.Messages[len(p.Messages)-1].Content) == "" {
		p.doubt("continue_final_message is set, but the last message has no text")
	}
	if p.given[fieldTemplate].raw != nil {
		p.doubt("chat_template is given: a template of the sender's own")
	}
	if p.textOf(&p.given[fieldToolChoice], "none") != "none" { // as the server has it
		if tools := p.objects(fieldTools, "tools"); len(tools) > 0 {
			o.Tools = tools
		}
	}
	o.Documents = p.objects(fieldDocuments, "documents")
	p.variables()
}

// variables are what the template sees under names of their own. Of two with one name
// that counts which came later.
func (p *Peeked) variables() {
	effort, kwargs := &p.given[fieldEffort], &p.given[fieldKwargs]
	if kwargs.is('{') {
		s := scanner{b: kwargs.raw, at: 1}
		for i := 0; ; i++ {
			name, ok := s.member(i)
			if !ok {
				break
			}
			key := string(appendValid(nil, name))
			if value, _ := s.skip(); len(value) > 0 && value[0] == 'n' {
				delete(p.Options.Variables, key)
			} else {
				p.variable(key, value)
			}
		}
	}
	if _, twice := p.Options.Variables["reasoning_effort"]; effort.is('"') && (!twice || effort.order > kwargs.order) {
		p.variable("reasoning_effort", effort.raw)
	}
}

func (p *Peeked) variable(name string, raw []byte) {
	switch name {
	case "messages", "tools", "documents", "add_generation_prompt":
		p.doubt("chat_template_kwargs.%s would take the place of the field %[1]s", name)
		return
	}
	if p.Options.Variables == nil {
		p.Options.Variables = map[string]json.RawMessage{}
	}
	p.Options.Variables[name] = raw
}

// objects is a field that is an array of objects, which are not looked into.
func (p *Peeked) objects(f peekField, name string) []json.RawMessage {
	g := &p.given[f]
	if g.raw == nil {
		return nil
	}
	if !g.is('[') {
		p.doubt("%s is no array", name)
		return nil
	}
	out := []json.RawMessage{}
	s := scanner{b: g.raw, at: 1}
	for i := 0; s.more(i, ']'); i++ {
		raw, _ := s.skip()
		if len(raw) == 0 || raw[0] != '{' {
			p.doubt("%s[%d] is no object", name, i)
		}
		out = append(out, raw)
	}
	return out
}

// messages reads the conversation at s.
func (p *Peeked) messages(s *scanner) {
	clear(p.Messages)
	p.Messages = p.Messages[:0]
	if !s.enter('[') {
		s.skip()
		return
	}
	for i := 0; s.more(i, ']'); i++ {
		p.Messages = append(p.Messages, chat.Message{NoContent: true})
		p.message(s, i)
	}
}

// messageField numbers the fields of a message that templates see.
type messageField int

const (
	messageRole messageField = iota
	messageContent
	messageName
	messageReasoning
	messageReasoningContent
	messageToolCallID
	messageToolCalls
	messageFields
)

func messageFieldOf(name []byte) messageField {
	switch string(name) {
	case "role":
		return messageRole
	case "content":
		return messageContent
	case "name":
		return messageName
	case "reasoning":
		return messageReasoning
	case "reasoning_content":
		return messageReasoningContent
	case "tool_call_id":
		return messageToolCallID
	case "tool_calls":
		return messageToolCalls
	}
	return messageFields
}

// message reads the i-th message at s into its place.
func (p *Peeked) message(s *scanner, i int) {
	m := &p.Messages[i]
	if !s.enter('{') {
		s.skip()
		p.doubt("messages[%d] is no object", i)
		return
	}
	var all [messageFields]given
	for j := 0; ; j++ {
		name, ok := s.member(j)
		if !ok {
			break
		}
		if f := messageFieldOf(name); f < messageFields {
			p.take(s, &all[f])
		} else {
			s.skip()
		}
	}
	if s.broken {
		return
	}
	if m.Role = p.textOf(&all[messageRole], roleOf(&all[messageRole])); m.Role == "developer" {
		m.Role = "system"
	}
	if m.Role == "" {
		p.doubt("messages[%d] has no role", i)
	}
	if all[messageContent].raw != nil {
		m.Content, m.NoContent = p.content(&all[messageContent], i), false
	}
	m.Name = p.textOf(&all[messageName], "")
	first, second := &all[messageReasoning], &all[messageReasoningContent]
	if first.order > second.order {
		first, second = second, first
	}
	if m.Reasoning = p.textOf(first, ""); second.is('"') {
		m.Reasoning = p.textOf(second, "")
	}
	m.ToolCallID = p.textOf(&all[messageToolCallID], "")
	m.ToolCalls = p.toolCalls(&all[messageToolCalls], i)
}

// roleOf is a role's name that needs no memory of its own.
func roleOf(g *given) string {
	switch string(g.raw) {
	case `"user"`:
		return "user"
	case `"assistant"`:
		return "assistant"
	case `"system"`:
		return "system"
	case `"tool"`:
		return "tool"
	}
	return ""
}

// content is a text, or parts that are texts, joined as [DecodeChat] joins them. Where
// a part is no text there stands what tells it from other ones.
func (p *Peeked) content(g *given, i int) string {
	if g.is('"') {
		return p.textOf(g, "")
	}
	if !g.is('[') {
		p.doubt("messages[%d].content is neither text nor parts", i)
		return placeOf(g.raw)
	}
	var texts []string
	s := scanner{b: g.raw, at: 1}
	for j := 0; s.more(j, ']'); j++ {
		var part given
		p.take(&s, &part)
		text, ok := p.part(&part)
		if !ok {
			p.doubt("messages[%d].content[%d] is no text", i, j)
		}
		texts = append(texts, text)
	}
	return strings.Join(texts, "\n")
}

// part is the text of a part; false if it is of another kind. vLLM takes strings too,
// and the names that OpenAI's other interface has for texts.
func (p *Peeked) part(g *given) (string, bool) {
	if g.is('"') {
		return p.textOf(g, ""), true
	}
	if !g.is('{') {
		return placeOf(g.raw), false
	}
	var kind, text given
	s := scanner{b: g.raw, at: 1}
	for i := 0; ; i++ {
		name, ok := s.member(i)
		if !ok {
			break
		}
		switch string(name) {
		case "type":
			p.take(&s, &kind)
		case "text":
			p.take(&s, &text)
		default:
			s.skip()
		}
	}
	switch p.textOf(&kind, "text") { // "text" costs no memory
	case "text", "input_text", "output_text":
		if text.is('"') {
			return p.textOf(&text, ""), true
		}
	}
	return placeOf(g.raw), false
}

// placeOf stands for what is no text: the same for the same value, so that prompts
// which differ there are not taken for equal.
func placeOf(raw []byte) string {
	const digits = "0123456789abcdef"
	h := xxh3.Hash(raw)
	b := []byte("<|no text 0123456789abcdef|>")
	for i := range 16 {
		b[10+i] = digits[h>>(60-4*i)&15]
	}
	return string(b)
}

// toolCalls are those of an assistant's turn before.
func (p *Peeked) toolCalls(g *given, i int) []chat.ToolCall {
	if g.raw == nil {
		return nil
	}
	if !g.is('[') {
		p.doubt("messages[%d].tool_calls is no array", i)
		return nil
	}
	var all []chat.ToolCall
	s := scanner{b: g.raw, at: 1}
	for j := 0; s.more(j, ']'); j++ {
		var id, function, name, arguments given
		p.pair(&s, "id", &id, "function", &function)
		if function.is('{') {
			in := scanner{b: function.raw}
			p.pair(&in, "name", &name, "arguments", &arguments)
		}
		call := chat.ToolCall{ID: p.textOf(&id, ""), Name: p.textOf(&name, ""), Arguments: arguments.raw}
		if call.Name == "" {
			p.doubt("messages[%d].tool_calls[%d] calls nothing", i, j)
		}
		all = append(all, call)
	}
	return all
}

// pair reads two members of the object at s.
func (p *Peeked) pair(s *scanner, one string, first *given, other string, second *given) {
	if !s.enter('{') {
		s.skip()
		return
	}
	for i := 0; ; i++ {
		name, ok := s.member(i)
		switch {
		case !ok:
			return
		case string(name) == one:
			p.take(s, first)
		case string(name) == other:
			p.take(s, second)
		default:
			s.skip()
		}
	}
}
