package actors

import (
	"container/list"
	"errors"
	"fmt"
	"slices"

	"github.com/coppice-llm/coppice/grammar"
	"github.com/coppice-llm/coppice/scheduler"
)

// Format is what the text of an output has to match, one of these; the zero value
// lets everything pass.
type Format struct {
	// JSON: a JSON object.
	JSON bool
	// JSONSchema: JSON that the schema describes, which is given as JSON itself.
	JSONSchema string
	// Regexp: text that the expression matches from beginning to end. Syntax: RE2.
	Regexp string
}

// ErrFormatTimeout ends requests whose Format took too long to compile.
var ErrFormatTimeout = errors.New("actors: format takes too long to compile")

func (f Format) check() error {
	given := 0
	for _, is := range []bool{f.JSON, f.JSONSchema != "", f.Regexp != ""} {
		if is {
			given++
		}
	}
	if given > 1 {
		return &scheduler.FieldError{Field: "Format", Err: fmt.Errorf("%w: Format has %d of JSON, JSONSchema and Regexp, want one", scheduler.ErrInvalid, given)}
	}
	return nil
}

// formatsActor has formats compiled, each once, and keeps those that were used
// last. Requests wait here, not at the scheduler, where they would hold a place.
type formatsActor struct {
	sys     *System
	kept    map[Format]*list.Element // of *format
	byUse   *list.List               // those that are kept, latest first
	waiting map[Format][]*submit     // for those that are not compiled yet
	queue   []Format                 // not given to a compiler yet
	idle    []int                    // compilers
}

// format is a compiled one, or why it can't be.
type format struct {
	key     Format
	grammar *grammar.Grammar
	err     error
}

func newFormatsActor(s *System) *formatsActor {
	a := &formatsActor{sys: s, kept: make(map[Format]*list.Element), byUse: list.New(), waiting: make(map[Format][]*submit)}
	for i := range compilers {
		a.idle = append(a.idle, i)
	}
	return a
}

func (a *formatsActor) receive(self *process, message any) {
	switch m := message.(type) {
	case *needFormat:
		a.need(m)
	case *compiled:
		a.compiled(m)
	case *abort:
		a.abort(m)
	case *shutdown:
		self.quit()
	default:
		unknown(m)
	}
}

// need passes the request on if its format is there, or has it wait.
func (a *formatsActor) need(m *needFormat) {
	if gone := m.submit.stream.gone.Load(); gone != nil {
		a.finish(m.submit.stream, scheduler.Ending{Reason: scheduler.Abort, Err: *gone})
		return
	}
	if e := a.kept[m.format]; e != nil {
		a.byUse.MoveToFront(e)
		a.pass(m.submit, e.Value.(*format))
		return
	}
	others, begun := a.waiting[m.format]
	a.waiting[m.format] = append(others, m.submit)
	if !begun {
		a.queue = append(a.queue, m.format)
		a.start()
	}
}

// start gives the compilers what they can take.
func (a *formatsActor) start() {
	for len(a.queue) > 0 && len(a.idle) > 0 {
		f, worker := a.queue[0], a.idle[len(a.idle)-1]
		a.queue, a.idle = a.queue[1:], a.idle[:len(a.idle)-1]
		if len(a.waiting[f]) == 0 { // all gave up
			delete(a.waiting, f)
			a.idle = append(a.idle, worker)
			continue
		}
		a.sys.compilers[worker].tell(&compile{worker, f})
	}
}

func (a *formatsActor) compiled(m *compiled) {
	f := &format{m.compile.format, m.grammar, m.err}
	for _, waits := range a.waiting[f.key] {
		a.pass(waits, f)
	}
	delete(a.waiting, f.key)
	a.kept[f.key] = a.byUse.PushFront(f)
	if a.byUse.Len() > a.sys.cfg.Formats {
		delete(a.kept, a.byUse.Remove(a.byUse.Back()).(*format).key)
	}
	a.idle = append(a.idle, m.compile.worker)
	a.start()
}

func (a *formatsActor) pass(m *submit, f *format) {
	if f.err != nil {
		a.finish(m.stream, scheduler.Ending{Reason: scheduler.Failed, Err: f.err})
		return
	}
	m.req.Format = f.grammar
	a.sys.scheduler.tell(m)
}

// abort ends a request that waits here.
func (a *formatsActor) abort(m *abort) {
	for f, waits := range a.waiting {
		if i := slices.IndexFunc(waits, func(w *submit) bool { return w.stream.id == m.id }); i >= 0 {
			a.finish(waits[i].stream, scheduler.Ending{Reason: scheduler.Abort, Err: m.err})
			a.waiting[f] = slices.Delete(waits, i, i+1)
			return
		}
	}
}

// finish ends a request that the scheduler has not heard of.
func (a *formatsActor) finish(stream *Stream, e scheduler.Ending) {
	stream.end(e)
	a.sys.door.leave(stream)
}
