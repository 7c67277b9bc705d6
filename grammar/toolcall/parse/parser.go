package parse

import "github.com/coppice-llm/coppice/grammar/toolcall"

// Options say how a Parser reads an output.
type Options struct {
	// Form is the form of the calls. nil: the output has none.
	Form *toolcall.Form
	// Tools are the names of the request's tools. Where a form's calls have no mark of their own,
	// a text is a call only if it names one of them.
	Tools []string
	// Exact says that a grammar holds the calls to the form, so that arguments can be given as
	// they arrive, once the name and the beginning of the arguments are there. Otherwise a call is
	// given once it is complete, and a malformed one is text. A call that the end of the output
	// cuts is given with what there is of its arguments.
	Exact bool
	// One keeps the first call and drops the others.
	One bool
	// Reasoning separates the reasoning at the beginning of the output. Opened says that the
	// prompt itself ends with its opening tag. Harmony's channels are separated without it.
	Reasoning, Opened bool
}

// Event is a part of an output, in the order of the text.
type Event struct {
	Kind Kind
	Text string
}

// Kind says which part of an output an Event belongs to.
type Kind uint8

// Kinds of events.
const (
	Text      Kind = iota // the text of the answer
	Thought               // the reasoning
	Call                  // the event's text is the name of the tool
	Arguments             // continues the arguments of the last call
)

// Parser separates an output into its parts. The output may arrive in pieces of any size; the
// parts are the same for all of them.
type Parser struct {
	think    *thinking // nil: no reasoning expected
	channels *channels // nil: the form has none
	calls    *calls    // nil: no tools
	events   []Event
}

// NewParser returns a Parser at the beginning of an output.
func NewParser(o Options) *Parser {
	p := &Parser{}
	if o.Form != nil {
		p.calls = newCalls(o)
	}
	switch {
	case o.Form != nil && readings[o.Form.Name].channels:
		p.channels = &channels{calls: p.calls}
	case o.Reasoning:
		p.think = &thinking{inside: o.Opened}
	}
	return p
}

// Next returns the events of text, the next piece of the output. last says that the output has
// ended: Next then also returns events for all delayed bytes. The slice is valid until the next
// call.
func (p *Parser) Next(text string, last bool) []Event {
	p.events = p.events[:0]
	if p.channels != nil {
		p.events = p.channels.next(p.events, text, last)
		return p.events
	}
	if p.think != nil {
		var thought string
		if thought, text = p.think.next(text, last); thought != "" {
			p.events = append(p.events, Event{Thought, thought})
		}
	}
	if p.calls == nil {
		if text != "" {
			p.events = append(p.events, Event{Text, text})
		}
		return p.events
	}
	p.events = append(p.events, p.calls.next(text, last)...)
	return p.events
}

// Calls returns the number of calls that have begun.
func (p *Parser) Calls() int {
	if p == nil || p.calls == nil {
		return 0
	}
	return p.calls.count
}
