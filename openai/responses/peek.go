package responses

import (
	"fmt"
	"strconv"

	"github.com/coppice-llm/coppice/conversation"
	"github.com/coppice-llm/coppice/internal/jsonbody"
	"github.com/coppice-llm/coppice/openai"
)

// routed are the fields that a proxy reads, with the same setters as a server.
var routed = []string{
	"model", "input", "instructions", "previous_response_id", "tools", "tool_choice", "max_output_tokens", "reasoning", "user", "prompt_cache_key", "stream",
}

// Peek resets p and decodes the body of a request to POST /v1/responses into it, leniently: the worker judges the request. names
// is the response or the item that the request continues or refers to, "" if there is none: only the worker that has it can
// answer, and p.Doubt says that the prompt is not known. The error, a *conversation.Error of status 400, means that no worker
// could read the body. p refers to parts of body, which must not change until the next Reset.
func Peek(body []byte, p *openai.Peeked) (names string, err error) {
	p.Reset()
	s := jsonbody.Scanner{B: body}
	a := &Ask{}
	r := &reading{Decoder: jsonbody.Decoder{Lenient: true}, ask: a, thread: thread{all: p.Messages}}
	a.Options.AddGenerationPrompt = true
	if r.Broken = s.Next() != '{'; !r.Broken {
		r.routedFields(&s, value{Raw: body[s.At:], Top: body})
	}
	if r.Broken || s.Next() != 0 || s.At != len(body) {
		if jsonbody.Shallow(body) { // find the fault that a server would report
			if _, fault := jsonbody.ParseObject(body); fault != nil {
				return "", conversation.Invalid(fault.Param, fault.Code, "%s", fault.Message)
			}
		}
		return "", conversation.Invalid("", "invalid_json", "the body is not a JSON object: it can't be read beyond byte %d", s.At)
	}
	if r.OfPrompt = true; len(a.Messages) == 0 {
		r.Missing(jsonbody.Param("input"))
	}
	if r.choice.None {
		a.Options.Tools = nil
	}
	p.Model, p.User, p.CacheSalt, p.Session, p.PublicTokens, p.Stream = a.Model, a.User, a.CacheSalt, a.Session, a.PublicTokens, a.Stream
	p.N, p.OutputTokens, p.Messages, p.Options = 1, a.MaxTokens, a.Messages, a.Options
	if a.Priority != 0 {
		p.Hints.Priority = strconv.Itoa(int(a.Priority))
	}
	if r.Doubt != nil {
		p.Doubt = fmt.Errorf("openai: %w", r.Doubt)
	}
	return r.names, nil
}

// routedFields reads the fields of the object at s, and moves s past it.
func (r *reading) routedFields(s *jsonbody.Scanner, v value) {
	for _, f := range r.Members(s, v, "", nil) {
		for _, name := range routed {
			if string(f.Name) == name {
				fields[name](r, f.Value)
			}
		}
		switch string(f.Name) {
		case "cache_salt", "priority", "coppice":
			openai.Extension(&r.Decoder, f, &r.ask.Params)
		}
	}
	if !r.Broken {
		r.conversation()
	}
}
