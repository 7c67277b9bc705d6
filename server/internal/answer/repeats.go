package answer

import (
	"bytes"

	coppice "github.com/coppice-llm/coppice"
	"github.com/coppice-llm/coppice/grammar/toolcall/parse"
)

// repeats ends an output at a call that equals the call before it, byte by byte. At temperature 0 a model that
// repeats itself once does so until the output is full. The repeated call, and all after it, is not given.
//
// It delays a call of the same name until its arguments differ.
type repeats struct {
	last   toolCall // the last call that was given
	calls  int      // calls that were given
	held   toolCall // a call that equals last so far
	holds  bool     // held is set
	ended  bool     // a call was repeated
	events []parse.Event
}

// next returns the events that the client gets. last says that the output has ended. The slice is valid until the next call.
func (r *repeats) next(events []parse.Event, last bool) []parse.Event {
	r.events = r.events[:0]
	for _, e := range events {
		if r.holds && e.Kind != parse.Arguments {
			r.settle()
		}
		switch {
		case r.ended:
			return r.events
		case r.holds:
			r.held.arguments = append(r.held.arguments, e.Text...)
			if len(r.held.arguments) >= len(r.last.arguments) || !bytes.HasPrefix(r.last.arguments, r.held.arguments) {
				r.settle()
			}
			continue
		case e.Kind == parse.Call && r.calls > 0 && e.Text == r.last.name:
			r.held, r.holds = toolCall{name: e.Text}, true
			continue
		case e.Kind == parse.Call:
			r.last, r.calls = toolCall{name: e.Text}, r.calls+1
		case e.Kind == parse.Arguments:
			r.last.arguments = append(r.last.arguments, e.Text...)
		}
		r.events = append(r.events, e)
	}
	if last && r.holds {
		r.settle()
	}
	return r.events
}

// settle ends the output if the held call equals the one before, or else gives it.
func (r *repeats) settle() {
	r.holds = false
	if r.ended = bytes.Equal(r.held.arguments, r.last.arguments); r.ended {
		return
	}
	r.last, r.calls = r.held, r.calls+1
	r.events = append(r.events, parse.Event{Kind: parse.Call, Text: r.held.name})
	if len(r.held.arguments) > 0 {
		r.events = append(r.events, parse.Event{Kind: parse.Arguments, Text: string(r.held.arguments)})
	}
}

// repeated reports whether the output has ended at a repeated call.
func (p *parser) repeated() bool { return p != nil && p.repeats != nil && p.repeats.ended }

// stopped returns the ending of an output. One that has ended at a repeated call was not cut: the model had nothing to add.
func (p *parser) stopped(e *coppice.Ending) *coppice.Ending {
	if e == nil || !p.repeated() {
		return e
	}
	stopped := *e
	stopped.Reason, stopped.Err, stopped.StopString = coppice.Stop, nil, ""
	return &stopped
}

// turns counts the outputs of an answer that go on.
type turns struct {
	over     map[int]bool // by choice
	repeated bool
}

// note is told of each piece of a choice: whether its output has ended, or repeats a call.
func (t *turns) note(choice int, ended, repeated bool) {
	if !ended && !repeated {
		return
	}
	if t.over == nil {
		t.over = map[int]bool{}
	}
	t.over[choice] = true
	t.repeated = t.repeated || repeated
}

// done reports whether none of n outputs goes on, and one of them repeats a call.
func (t *turns) done(n int) bool { return t.repeated && len(t.over) == n }
