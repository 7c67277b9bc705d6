package answer

import (
	"strings"

	"github.com/coppice-llm/coppice/conversation"
	"github.com/coppice-llm/coppice/grammar/toolcall/parse"
)

// parser separates an output into the fields of a chat message. A nil parser has made no calls.
type parser struct {
	of     *parse.Parser
	called bool // calls count as such; else what they say is text
	clean  cleaner
	// repeats ends the output at a repeated call; nil: calls may repeat.
	repeats *repeats
	events  []parse.Event
	names   []string // of the tools that are called, in order
}

// newParser returns nil if the whole text is content.
func (a *Answer) newParser() *parser {
	called := a.calls != conversation.NoCalls
	if !called && !a.reasoning && !parse.Frames(a.form) {
		return nil
	}
	o := parse.Options{
		Tools: a.tools, Exact: a.calls == conversation.ForcedCalls || a.held, One: a.calls == conversation.OneCall, Reasoning: a.reasoning, Opened: a.opened,
	}
	if called || parse.Frames(a.form) {
		o.Form = a.form
	}
	p := &parser{of: parse.NewParser(o), called: called, clean: cleaner{marks: a.marks}}
	if called && a.greedy {
		p.repeats = &repeats{}
	}
	return p
}

// next returns the events of text, the next piece of the output. last says that the output has
// ended. The slice is valid until the next call.
func (p *parser) next(text string, last bool) []parse.Event {
	all := p.cleaned(p.of.Next(text, last), last)
	if p.repeats != nil {
		all = p.repeats.next(all, last)
	}
	for i := range all {
		if all[i].Kind == parse.Call {
			p.names = append(p.names, all[i].Text)
		}
	}
	return all
}

// tools returns the names of the tools that are called, in order.
func (p *parser) tools() []string {
	if p == nil {
		return nil
	}
	return p.names
}

// cleaned returns the events without marks, and without calls where they don't count.
func (p *parser) cleaned(all []parse.Event, last bool) []parse.Event {
	if p.called && len(p.clean.marks) == 0 {
		return all
	}
	p.events = p.events[:0]
	for _, e := range all {
		if !p.called {
			switch e.Kind {
			case parse.Call:
				continue
			case parse.Arguments:
				e.Kind = parse.Text
			}
		}
		p.events = p.clean.next(p.events, e)
	}
	if last {
		p.events = p.clean.flush(p.events)
	}
	return p.events
}

// calls returns the number of calls that have begun.
func (p *parser) calls() int {
	if p == nil || !p.called {
		return 0
	}
	return p.of.Calls()
}

// cleaner removes marks from content and reasoning. Where the marks of a form are control tokens,
// they are no text: one that belongs to no call is dropped as other control tokens are.
type cleaner struct {
	marks []string
	held  parse.Event // the end of the text so far, which may begin a mark
}

// next appends e without marks to dst. It delays text that may begin a mark.
func (c *cleaner) next(dst []parse.Event, e parse.Event) []parse.Event {
	if len(c.marks) == 0 {
		return append(dst, e)
	}
	if e.Kind != c.held.Kind {
		dst = c.flush(dst)
	}
	if e.Kind != parse.Text && e.Kind != parse.Thought {
		return append(dst, e)
	}
	text := c.held.Text + e.Text
	said := make([]byte, 0, len(text))
	for text != "" {
		n, part := c.at(text)
		if part {
			break
		}
		if n == 0 {
			said, n = append(said, text[0]), 1
		}
		text = text[n:]
	}
	c.held = parse.Event{Kind: e.Kind, Text: text}
	if len(said) > 0 {
		dst = append(dst, parse.Event{Kind: e.Kind, Text: string(said)})
	}
	return dst
}

// at returns the length of the mark with which text begins, 0 if there is none. part reports that
// text is the beginning of a mark.
func (c *cleaner) at(text string) (n int, part bool) {
	for _, m := range c.marks {
		if strings.HasPrefix(text, m) {
			return len(m), false
		}
		part = part || strings.HasPrefix(m, text)
	}
	return 0, part
}

// flush appends the delayed text to dst.
func (c *cleaner) flush(dst []parse.Event) []parse.Event {
	if c.held.Text != "" {
		dst = append(dst, c.held)
		c.held.Text = ""
	}
	return dst
}
