package parse

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/coppice-llm/coppice/grammar/toolcall"
)

// calls separates tool calls from the text of an output, which may arrive in pieces of any size.
// It reads what the form's reading describes: one byte moves it from place to place,
//
//	text → lead → object ──────────────────→ close → text, or lead of the next call
//	          ↘ name → between → arguments ↗
//	                           ↘ python    ↗
//
// A malformed call is given as text, read again from the text that didn't fit, where the next call
// may begin. White space next to calls, up to heldSpace bytes, is dropped.
//
// calls delays at most heldSpace bytes of white space and the beginning of a mark. Where calls have
// no mark it delays up to heldText bytes and the name of a tool. It delays a call until the call is
// complete, or has ended with the output, unless a grammar holds the output to the form. Each byte
// is scanned a bounded number of times.
type calls struct {
	form    *toolcall.Form
	reads   *reading
	tools   []string
	longest int    // length of the longest name of a tool
	firsts  string // the first bytes of the marks
	exact   bool   // give the arguments of a call as they arrive
	only    bool   // keep the first call, drop others

	at    place
	held  string // in text: white space and a possible beginning of a mark
	call  []byte // elsewhere: all since the text or the call before, or since the arguments that were given
	from  int    // in call: end of the mark
	token int    // in call: start of the fixed text that is being read, after white space
	white int    // length of the white space before it
	group group
	now   current

	count  int    // calls begun so far
	begun  bool   // the arguments of the current call are being given
	said   []byte // bytes to give with the next event
	events []Event
}

// group describes the surroundings of calls.
type group struct {
	marked bool     // it began with a mark
	some   bool     // there was a call in it
	open   []string // the texts that close what was opened, the last one last
	base   int      // that many of them belong to marks
	latest string   // the fixed text read last
}

// current is the call that is being read. Positions are in calls.call.
type current struct {
	name  string // once it is complete
	word  int    // start of the word that is being read, without quotes
	keeps bool   // the word is no name
	body  int    // start of the object or the arguments
	end   int    // end of the object or the arguments
	keys  object
	json  brackets
	py    *python
}

// place is the position of the next byte relative to a call.
type place uint8

const (
	inText      place = iota
	inLead            // before a call: after a mark, between calls, or at the beginning of the output or of a line
	inObject          // inside an object with name and arguments
	inName            // inside a name without quotes
	inBetween         // between such a name and the arguments
	inArguments       // inside the arguments after such a name
	inPython          // inside arguments as Python writes them
	inClose           // after a call, before the text that closes it
)

const (
	heldSpace = 24
	heldText  = 64
)

func newCalls(o Options) *calls {
	p := &calls{form: o.Form, reads: readings[o.Form.Name], tools: o.Tools, exact: o.Exact, only: o.One, longest: len(readings[o.Form.Name].content)}
	for _, name := range o.Tools {
		p.longest = max(p.longest, len(name))
	}
	for _, m := range readings[o.Form.Name].marks {
		p.firsts += m.open[:1]
	}
	if readings[o.Form.Name].first {
		p.at = inLead
	}
	return p
}

// next returns the events of text, the next piece of the output. last says that the output has
// ended: next then also returns the events of the delayed bytes. The slice is valid until the next
// call.
func (p *calls) next(text string, last bool) []Event {
	p.events = p.events[:0]
	p.read(text)
	if last {
		p.last()
	}
	p.flush()
	return p.events
}

func (p *calls) read(text string) {
	for text != "" {
		if p.at == inText {
			text = p.plain(text)
		} else {
			text = p.called(text)
		}
	}
}

// last gives the bytes that are still delayed, once the output has ended.
func (p *calls) last() {
	switch {
	case p.begun || p.cut():
	case p.at == inText:
		if p.count == 0 || trimSpaceLeft(p.held) != "" { // not only white space after a call
			p.said = append(p.said, p.held...)
		}
	case p.at == inLead && p.count > 0 && strings.Trim(string(p.call), spaces) == "": // likewise
	case p.at == inLead && p.group.some && strings.Trim(string(p.call[:p.token]), spaces+",;") == "": // between two calls
	default:
		p.said = append(p.said, p.call...)
	}
}

// flush turns the bytes in said into an event: text, or arguments.
func (p *calls) flush() {
	if len(p.said) == 0 {
		return
	}
	kind := Text
	if p.begun {
		kind = Arguments
	}
	if kind == Text || !p.dropped() {
		p.events = append(p.events, Event{kind, string(p.said)})
	}
	p.said = p.said[:0]
}

// dropped reports whether the current call is left out.
func (p *calls) dropped() bool { return p.only && p.count > 1 }

// plain reads text outside of calls, up to and including a mark. It returns the rest.
func (p *calls) plain(text string) (rest string) {
	n := len(text)
	if p.held != "" { // joining all of a long text again and again would take quadratic time
		n = min(n, heldText)
	}
	all := p.held + text[:n]
	end, mark := p.find(all) // of the text before the mark, or before what may begin one
	if i := strings.IndexByte(all[:end], '\n'); i >= 0 && p.reads.lines {
		white := len(trimSpaceRight(all[:i]))
		p.said = append(p.said, all[:white]...)
		p.call, p.from, p.group = append(p.call[:0], all[white:i+1]...), 0, group{}
		rest = text[i+1-len(p.held):]
		p.held = ""
		p.lead()
		return rest
	}
	white := len(trimSpaceRight(all[:end]))
	p.said = append(p.said, all[:white]...)
	if mark.open == "" {
		p.held = all[white:]
		return text[n:]
	}
	end += len(mark.open)
	p.call = append(p.call[:0], all[white:end]...)
	rest = text[end-len(p.held):]
	p.held, p.group.some = "", false
	p.lead()
	p.mark(mark)
	return rest
}

// find returns the first mark in text and its position. If there is none, it returns the position
// of what may begin one at the end of text, which is the end if nothing does.
func (p *calls) find(text string) (int, pair) {
	for i := 0; ; i++ {
		next := strings.IndexAny(text[i:], p.firsts)
		if next < 0 {
			return len(text), pair{}
		}
		i += next
		for _, m := range p.reads.marks {
			if strings.HasPrefix(text[i:], m.open) {
				return i, m
			}
			if strings.HasPrefix(m.open, text[i:]) {
				return i, pair{}
			}
		}
	}
}

// called reads text outside of plain text. It returns the rest once plain text follows.
func (p *calls) called(text string) (rest string) {
	for i := range len(text) {
		if !p.step(text[i]) {
			p.broken()
			return text[i:]
		}
		if p.at == inText {
			return text[i+1:]
		}
	}
	return ""
}

// broken gives a call as text that the next byte does not fit. Arguments that were given can't be
// taken back.
func (p *calls) broken() {
	if p.begun {
		p.flush()
		p.begun = false
	}
	end := len(p.call)
	if p.at == inLead || p.at == inBetween || p.at == inClose {
		end = p.token
	}
	p.said = append(p.said, p.call[:end]...)
	again := string(p.call[end:])
	p.call, p.at = p.call[:0], inText
	p.read(again)
}

// step reads a byte outside of plain text. It returns false if the byte does not fit, and leaves
// the byte out.
func (p *calls) step(c byte) bool {
	if p.undecided() && len(p.call)-p.from >= p.limit() {
		return false
	}
	switch p.at {
	case inLead:
		return p.before(c)
	case inObject:
		return p.object(c)
	case inName:
		return p.named(c)
	case inBetween:
		return p.between(c)
	case inArguments:
		return p.inside(c)
	case inPython:
		p.call = append(p.call, c)
		if !p.now.py.step(c) {
			p.call = p.call[:len(p.call)-1]
			return false
		}
		return !p.now.py.done() || p.complete()
	}
	return p.after(c)
}

// undecided reports whether the text may still turn out to be no call.
func (p *calls) undecided() bool {
	return p.at == inLead || p.at == inName || p.at == inBetween || p.at == inObject && !p.group.marked && (p.now.name == "" || p.now.keys.args == 0)
}

// limit returns the number of bytes after which an undecided text is no call. After a mark it need
// not be tight.
func (p *calls) limit() int {
	switch {
	case p.at == inLead:
		return heldText
	case p.group.marked:
		return 4*heldText + p.longest
	}
	return heldText + p.longest
}

// complete ends a call, or waits for the text that closes it.
func (p *calls) complete() bool {
	p.now.end = len(p.call)
	if !p.group.marked || p.reads.close == "" {
		return p.finish()
	}
	if p.begun {
		p.flush()
	}
	p.at, p.token, p.white = inClose, len(p.call), 0
	return true
}

// finish gives a complete call. It returns false, and leaves the last byte out, if the text is
// none.
func (p *calls) finish() bool {
	if !p.begun && !p.take() {
		p.call = p.call[:len(p.call)-1]
		p.token = len(p.call)
		return false
	}
	p.flush()
	p.begun, p.group.some = false, true
	p.call, p.from = p.call[:0], 0
	if p.lead(); p.group.marked && len(p.group.open) == 0 {
		p.at = inText
	}
	return true
}

// take appends the events of a complete call. It returns false, and appends nothing, if the text
// is no call.
func (p *calls) take() bool {
	name, arguments, ok := p.now.name, "", true
	switch {
	case p.now.py != nil:
		arguments = string(p.now.py.out)
	case p.now.keys.level > 0:
		name, arguments, ok = parts(p.call[p.now.body:p.now.end], p.group.marked)
	default:
		arguments = string(p.call[p.now.body:p.now.end])
		ok = json.Valid(p.call[p.now.body:p.now.end])
	}
	if !ok {
		return false
	}
	p.give(name, arguments)
	return true
}

// give appends the events of a call.
func (p *calls) give(name, arguments string) {
	p.flush()
	if p.count++; !p.dropped() {
		p.events = append(p.events, Event{Call, name})
		if arguments != "" {
			p.events = append(p.events, Event{Arguments, arguments})
		}
	}
}

// begin starts giving the arguments of a call as they arrive, from the last byte in call.
func (p *calls) begin() {
	p.give(p.now.name, "")
	p.begun = true
	p.call, p.token, p.from = p.call[:0], 0, 0
	p.said = append(p.said, '{')
}

// cut gives what there is of a call that has ended with the output, if that has a name and the
// beginning of arguments.
func (p *calls) cut() bool {
	var arguments []byte
	switch {
	case p.at == inClose:
		return p.take()
	case p.at == inArguments:
		arguments = p.call[p.now.body:]
	case p.at == inPython:
		arguments = p.now.py.out
	case p.now.name == "" || p.at == inText || p.at == inName || p.at == inLead:
		return false
	case p.at == inObject && p.now.keys.args > 0:
		arguments = p.call[p.now.keys.args:]
		if p.now.keys.end > 0 {
			arguments = p.call[p.now.keys.args:p.now.keys.end]
		}
	case !p.exact:
		return false
	}
	p.give(p.now.name, string(arguments))
	return true
}

// tool reports whether the request has a tool with this name.
func (p *calls) tool(name string) bool { return slices.Contains(p.tools, name) }
