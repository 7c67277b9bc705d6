package openai

import (
	"cmp"
	"fmt"

	"github.com/coppice-llm/coppice/conversation"
	"github.com/coppice-llm/coppice/internal/jsonbody"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/tokenizer/chat"
)

// Peeked holds what a proxy needs to route a request: model, tenant and prompt. It is decoded by
// the functions for a server's request, but leniently, because the worker judges the request:
// unknown fields and invalid values count as absent, and Doubt says why the prompt is uncertain.
// For a body that [DecodeCompletion] or [DecodeChat] accepts, it has the same values without a
// doubt.
//
// The zero value is ready to use; its memory is reused.
type Peeked struct {
	// Most bounds the Tokens to keep; 0: as many as a server accepts. The caller sets it, and
	// Reset keeps it.
	Most int

	Model, User, CacheSalt string
	Session                string // of prompt_cache_key or session_id
	Stream                 bool
	PublicTokens           int // number of leading prompt tokens that other salts may share
	N, BestOf              int // N is 1 if absent, BestOf 0
	OutputTokens           int // max_tokens or max_completion_tokens; 0: no limit
	// Truncate is vLLM's truncate_prompt_tokens: how many tokens of the prompt the worker keeps, the last ones or with KeepFirst
	// the first; 0: all, also for -1, which stands for as many as it takes.
	Truncate  int
	KeepFirst bool
	// SpecialTokens is vLLM's add_special_tokens; nil if absent.
	SpecialTokens *bool
	Hints         Hints

	// For a completion: the first of its Prompts is Tokens, or Text if Tokens is nil.
	Prompts   int
	Text      string
	Tokens    []kv.Token // in memory that the next Peek reuses
	Truncated bool       // there were more tokens than Most

	// For a chat. Messages and Options refer to parts of the body; the next Peek reuses the
	// memory of Messages.
	Messages      []chat.Message
	Options       chat.Options
	ContinueFinal bool

	// Doubt says why the prompt may be a different one; nil if it is certain.
	Doubt error

	state *peeking
}

// peeking is the reusable state of a Peeked.
type peeking struct {
	reading
	asCompletion Completion
	asChat       Chat
	first        []Prompt // at most the first prompt
	prompts      int      // number of prompts
	turns        []chat.Message
}

// routed are the fields that a proxy reads, mostly with the same setters as a server.
var routed = map[string]setter{
	"model":            shared["model"],
	"user":             shared["user"],
	"stream":           shared["stream"],
	"n":                shared["n"],
	"max_tokens":       shared["max_tokens"],
	"best_of":          completionFields["best_of"],
	"cache_salt":       (*reading).salt,
	"prompt_cache_key": extensions["prompt_cache_key"],
	"session_id":       extensions["session_id"],
	"coppice":          func(r *reading, v value) { r.within("", v, routedOwn) },
	"priority":         func(r *reading, v value) { hint(&r.routing.top, v) },
	"nvext":            (*reading).nvext,
	"truncate_prompt_tokens": ofPrompt(func(r *reading, v value) {
		n, ok := r.Whole(v, -1, maxPromptTokens)
		if ok && n == 0 {
			r.Fail(v, "", "%s is 0: nothing is left of the prompt", v)
		}
		r.routing.truncate = max(0, int(n))
	}),
	"truncation_side": ofPrompt(func(r *reading, v value) { r.routing.keepFirst = r.OneOf(v, "left", "right") == "right" }),
	"add_special_tokens": func(r *reading, v value) {
		r.routing.special, r.routing.marks = v.Raw[0] == 't', v.Raw[0] == 't' || v.Raw[0] == 'f'
	},
}

// routedOwn are fields of the object "coppice".
var routedOwn = map[string]setter{
	"cache_salt":    (*reading).salt,
	"public_tokens": own["public_tokens"],
	"priority":      func(r *reading, v value) { hint(&r.routing.coppice, v) },
}

var routedCompletion = map[string]setter{
	"prompt_embeds": ofPrompt(func(r *reading, v value) { r.Fail(v, "", "%s is given: the prompt has no tokens", v) }),
}

var routedChat = map[string]setter{
	"max_completion_tokens":  chatFields["max_completion_tokens"],
	"tool_choice":            chatFields["tool_choice"],
	"tools":                  ofPrompt(chatFields["tools"]),
	"documents":              ofPrompt(chatFields["documents"]),
	"add_generation_prompt":  ofPrompt(chatFields["add_generation_prompt"]),
	"continue_final_message": ofPrompt(chatFields["continue_final_message"]),
	"reasoning_effort":       ofPrompt(chatFields["reasoning_effort"]),
	"chat_template_kwargs":   ofPrompt(chatFields["chat_template_kwargs"]),
	"chat_template":          ofPrompt(func(r *reading, v value) { r.Fail(v, "", "%s is given: the request has its own template", v) }),
}

// ofPrompt returns a setter that does what set does, for a field that is part of the prompt:
// faults in the field are recorded as the doubt.
func ofPrompt(set setter) setter {
	return func(r *reading, v value) {
		r.OfPrompt = true
		set(r, v)
		r.OfPrompt = false
	}
}

// maxHint is the most bytes kept of a hint: no valid number is longer.
const maxHint = 64

// hint stores the raw JSON of v in to. It cuts a value of more than maxHint bytes and appends
// "...", so that the result is no number, and is refused when the hint is used.
func hint(to *string, v value) {
	if *to = string(v.Raw[:min(len(v.Raw), maxHint)]); len(v.Raw) > maxHint {
		*to += "..."
	}
}

// nvext reads the hints in Dynamo's field nvext.
func (r *reading) nvext(v value) {
	h := &r.routing.hints
	for _, group := range r.Object(v, "") {
		router, agent := string(group.Name) == "router", string(group.Name) == "agent_hints"
		if !router && !agent {
			continue
		}
		for _, f := range r.Object(group.Value, "") {
			switch name := string(f.Name); {
			case router && name == "ttft_target":
				hint(&h.TTFT, f.Value)
			case router && name == "itl_target":
				hint(&h.ITL, f.Value)
			case agent && name == "priority":
				hint(&h.Priority, f.Value)
			}
		}
	}
}

// Limits of the memory kept between uses, so that one long prompt does not keep its memory
// forever.
const (
	keptTokens   = 1 << 18
	keptMessages = 1 << 10
	keptBytes    = 1 << 18
	keptFields   = 1 << 8
	keptName     = 256
)

// Reset clears the request, but keeps Most and the memory.
func (p *Peeked) Reset() {
	messages := p.Messages
	clear(messages)
	if cap(messages) > keptMessages {
		messages = nil
	}
	if q := p.state; q != nil {
		if cap(q.ids) > keptTokens {
			q.ids = nil
		}
		if cap(q.Buf) > keptBytes {
			q.Buf = nil
		}
		if cap(q.Kept) > keptFields {
			q.Kept = nil
		}
	}
	*p = Peeked{Most: p.Most, state: p.state, Messages: messages[:0]}
}

// PeekCompletion resets p and decodes the body of a request to /v1/completions into it. The
// error, an *conversation.Error of status 400, means that no worker could read the body: it is not a JSON
// object, or ends early. p does not refer to body.
func PeekCompletion(body []byte, p *Peeked) error {
	q := p.begin()
	q.Params, q.Shown, q.completion = &q.asCompletion.Params, &q.asCompletion.Shown, &q.asCompletion
	q.MaxTokens = defaultCompletionTokens
	if err := p.read(body, "prompt", routedCompletion); err != nil {
		return err
	}
	if q.OfPrompt = true; q.prompts == 0 {
		q.Missing(param("prompt"))
	}
	if p.Prompts, p.Truncated = q.prompts, q.cut; len(q.first) > 0 {
		p.Text, p.Tokens = q.first[0].Text, q.first[0].Tokens
	}
	p.end()
	return nil
}

// PeekChat resets p and decodes the body of a request to /v1/chat/completions into it. Errors
// are as for [PeekCompletion]. p refers to parts of body, which must not change until the next
// Reset.
func PeekChat(body []byte, p *Peeked) error {
	q := p.begin()
	c := &q.asChat
	q.Params, q.Shown, q.chat = &c.Params, &c.Shown, c
	q.turns, c.Options.AddGenerationPrompt = p.Messages, true
	if err := p.read(body, "messages", routedChat); err != nil {
		return err
	}
	c.Messages = q.turns
	if q.OfPrompt = true; len(c.Messages) == 0 {
		q.Missing(param("messages"))
	}
	if q.checkFinal(); q.wanted.None {
		c.Options.Tools = nil
	}
	if q.newer > 0 {
		c.MaxTokens = q.newer
	}
	p.Messages, p.Options, p.ContinueFinal = c.Messages, c.Options, c.ContinueFinal
	p.end()
	return nil
}

// CutFinal is [conversation.Turn.CutFinal].
func (p *Peeked) CutFinal(rendered string) (string, error) {
	c := conversation.Turn{Messages: p.Messages, ContinueFinal: p.ContinueFinal}
	return c.CutFinal(rendered)
}

// begin prepares p's memory for a body.
func (p *Peeked) begin() *peeking {
	p.Reset()
	if p.state == nil {
		p.state = &peeking{}
	}
	q := p.state
	most := p.Most
	if most <= 0 {
		most = maxPromptTokens
	}
	*q = peeking{first: q.first[:0], reading: reading{last: q.last,
		decoder: decoder{Decoder: jsonbody.Decoder{Lenient: true, Kept: q.Kept[:0], Buf: q.Buf}, most: most, ids: q.ids}}}
	return q
}

// read decodes the members of body with the setters in routed and more. long is the name of the
// member with the prompt or the messages. If body is not a JSON object, read resets p and returns
// an *conversation.Error.
func (p *Peeked) read(body []byte, long string, more map[string]setter) error {
	q := p.state
	s := scanner{B: body}
	if q.Broken = s.Next() != '{'; !q.Broken {
		all := q.Members(&s, value{Raw: body[s.At:], Top: body}, long, func(s scanner) scanner { return q.readLong(s, body, long) })
		for _, f := range all {
			if set := find(f.Name, routed, more); set != nil {
				set(&q.reading, f.Value)
			}
		}
	}
	if !q.Broken && s.Next() == 0 && s.At == len(body) {
		return nil
	}
	p.end()
	p.Reset()
	if jsonbody.Shallow(body) { // find the fault that a server would report
		if _, fault := jsonbody.ParseObject(body); fault != nil {
			return conversation.Invalid(fault.Param, fault.Code, "%s", fault.Message)
		}
	}
	return conversation.Invalid("", "invalid_json", "the body is not a JSON object: it can't be read beyond byte %d", s.At)
}

// readLong reads the prompt or the messages at s, depending on name, and returns the scanner after
// them. top is the whole body. If the body has the member twice, the last one counts.
func (q *peeking) readLong(s scanner, top []byte, name string) scanner {
	q.Doubt, q.cut, q.OfPrompt = nil, false, true
	if name != "messages" {
		q.first, q.prompts = q.promptsAt(&s, top, q.first[:0])
	} else {
		clear(q.turns)
		q.turns = q.conversationAt(&s, top, q.turns[:0])
	}
	q.OfPrompt = false
	return s
}

// end sets the fields of p and drops references to the body.
func (p *Peeked) end() {
	q := p.state
	p.Model, p.User, p.CacheSalt, p.Session, p.Stream = q.Model, q.User, q.CacheSalt, q.Session, q.Stream
	p.N, p.BestOf, p.OutputTokens, p.PublicTokens = max(q.N, 1), q.bestOf, q.MaxTokens, q.PublicTokens
	p.Hints = q.routing.hints
	p.Hints.Priority = cmp.Or(p.Hints.Priority, q.routing.top, q.routing.coppice)
	if q.routing.marks {
		p.SpecialTokens = &q.routing.special
	}
	p.Truncate, p.KeepFirst = q.routing.truncate, q.routing.keepFirst
	if p.Doubt = nil; q.Doubt != nil {
		p.Doubt = fmt.Errorf("openai: %w", q.Doubt)
	}
	for _, name := range []struct{ to, is *string }{{&q.last.model, &p.Model}, {&q.last.user, &p.User}, {&q.last.salt, &p.CacheSalt}} {
		if *name.is != "" && len(*name.is) <= keptName {
			*name.to = *name.is
		}
	}
	if p.Tokens != nil {
		q.ids = p.Tokens[:0]
	}
	clear(q.Kept)
	clear(q.first)
	q.turns = nil
	q.asCompletion, q.asChat, q.Params, q.Shown = Completion{}, Chat{}, nil, nil
}
