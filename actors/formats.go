package actors

import (
	"errors"
	"fmt"
	"slices"
	"time"

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
	// Calls: calls of tools, as jsonschema.Calls describes them, given as JSON:
	// {"tools": [{"name": …, "parameters": SCHEMA}], "most": 4, "answer": SCHEMA}, where
	// parameters and answer may be left out.
	Calls string
}

// ErrFormatTimeout ends requests whose Format took too long to compile.
var ErrFormatTimeout = errors.New("actors: format takes too long to compile")

func (f Format) check() error {
	given := 0
	for _, is := range []bool{f.JSON, f.JSONSchema != "", f.Regexp != "", f.Calls != ""} {
		if is {
			given++
		}
	}
	if given > 1 {
		return &scheduler.FieldError{Field: "Format", Err: fmt.Errorf("%w: Format has %d of JSON, JSONSchema, Regexp and Calls, want one", scheduler.ErrInvalid, given)}
	}
	return nil
}

// bytes is the length of its text.
func (f Format) bytes() int { return len(f.JSONSchema) + len(f.Regexp) + len(f.Calls) }

// formatsActor has formats compiled, each once, and keeps those that were used
// last. Requests wait here, not at the scheduler, where they would hold a place.
type formatsActor struct {
	sys     *System
	kept    shelf               // grammars
	refused shelf               // what can't be compiled, which must not push grammars out
	waiting map[Format][]waiter // for those that are not compiled yet
	making  map[Format]*compile // at a compiler
	turns   []*turn             // tenants who wait for formats that are at none, whose turn it is first
	busy    map[string]bool     // tenants with one at a compiler
	idle    []int               // compilers
	alarm   alarm               // rings when the next of those who wait runs out of time
}

// waiter is a request that waits for its format.
type waiter struct {
	*submit
	since time.Duration // on the system's clock, as until
	until time.Duration
	late  error // what it ends with then
}

// turn is the formats that a tenant waits for, in the order in which they were asked for.
// Another one may wait for the same.
type turn struct {
	tenant  string
	formats []Format
}

// refusedFormats is how many formats that can't be compiled are remembered, of refusedBytes
// of text each: fewer if some are longer.
const refusedFormats, refusedBytes = 256, 4 << 10

func newFormatsActor(s *System) *formatsActor {
	a := &formatsActor{
		sys: s, kept: newShelf(s.cfg.FormatBytes), refused: newShelf(refusedFormats * refusedBytes),
		waiting: make(map[Format][]waiter), making: make(map[Format]*compile), busy: make(map[string]bool),
	}
	a.alarm.ring = func() { s.formats.tell(&tick{}) }
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
	case *tick:
		a.expire()
	case *shutdown:
		self.quit()
	default:
		unknown(m)
	}
}

// release stops the timer, however the actor came to its end.
func (a *formatsActor) release() { a.alarm.stop() }

// need passes the request on if its format is there, or has it wait.
func (a *formatsActor) need(m *needFormat) {
	if gone := m.submit.stream.gone.Load(); gone != nil {
		a.sys.door.dismiss(m.submit.stream, scheduler.Ending{Reason: scheduler.Abort, Err: *gone})
		return
	}
	f := a.kept.take(m.format)
	if f == nil {
		f = a.refused.take(m.format)
	}
	if f != nil {
		a.pass(m.submit, f)
		return
	}
	a.waiting[m.format] = append(a.waiting[m.format], a.waiter(m.submit))
	if a.making[m.format] == nil {
		a.line(m.submit.req.Tenant, m.format)
		a.start()
	}
}

// waiter sets the alarm for a request that is to wait.
func (a *formatsActor) waiter(m *submit) waiter {
	now := a.sys.now()
	w := waiter{submit: m, since: now, until: lastTime, late: scheduler.ErrDeadline}
	if m.req.Deadline > 0 {
		w.until = m.req.Deadline
	}
	if q := m.req.QueueTimeout; q > 0 && now+q < w.until {
		w.until, w.late = now+q, scheduler.ErrQueueTimeout
	}
	if w.until < lastTime {
		a.alarm.wakeAt(now, w.until)
	}
	return w
}

// expire ends who has waited too long.
func (a *formatsActor) expire() {
	a.alarm.rang()
	now, next := a.sys.now(), lastTime
	for f, waits := range a.waiting {
		kept := waits[:0]
		for _, w := range waits {
			if w.until <= now {
				a.sys.door.dismiss(w.stream, scheduler.Ending{Reason: scheduler.Abort, Err: fmt.Errorf("%w: its format is not compiled yet", w.late)})
				continue
			}
			next = min(next, w.until)
			kept = append(kept, w)
		}
		clear(waits[len(kept):])
		a.keepWaiting(f, kept)
	}
	if next < lastTime {
		a.alarm.wakeAt(now, next)
	}
}

// keepWaiting notes who still waits for a format. If nobody does, it is forgotten, and its
// compiler may stop.
func (a *formatsActor) keepWaiting(f Format, waits []waiter) {
	if len(waits) > 0 {
		a.waiting[f] = waits
		return
	}
	delete(a.waiting, f)
	if c := a.making[f]; c != nil {
		c.unwanted.Store(true)
	} else {
		a.unline(f)
	}
}

// line puts a format behind the others of its tenant, unless it is among them.
func (a *formatsActor) line(tenant string, f Format) {
	i := slices.IndexFunc(a.turns, func(t *turn) bool { return t.tenant == tenant })
	if i < 0 {
		i = len(a.turns)
		a.turns = append(a.turns, &turn{tenant: tenant})
	}
	if t := a.turns[i]; !slices.Contains(t.formats, f) {
		t.formats = append(t.formats, f)
	}
}

// unline takes a format out of the lines of all tenants.
func (a *formatsActor) unline(f Format) {
	a.turns = slices.DeleteFunc(a.turns, func(t *turn) bool {
		if i := slices.Index(t.formats, f); i >= 0 {
			t.formats = slices.Delete(t.formats, i, i+1)
		}
		return len(t.formats) == 0
	})
}

// start gives the compilers what they can take: tenants in turns, and one at a time
// of each, so that who has hard ones holds up nobody but himself.
func (a *formatsActor) start() {
	for len(a.idle) > 0 {
		i := slices.IndexFunc(a.turns, func(t *turn) bool { return !a.busy[t.tenant] })
		if i < 0 {
			return
		}
		t := a.turns[i]
		a.turns = append(slices.Delete(a.turns, i, i+1), t) // the others first
		c := &compile{worker: a.idle[len(a.idle)-1], tenant: t.tenant, format: t.formats[0]}
		a.idle = a.idle[:len(a.idle)-1]
		a.busy[c.tenant], a.making[c.format] = true, c
		a.unline(c.format)
		a.sys.compilers[c.worker].tell(c)
	}
}

func (a *formatsActor) compiled(m *compiled) {
	c := m.compile
	delete(a.making, c.format)
	delete(a.busy, c.tenant)
	if i := slices.IndexFunc(a.turns, func(t *turn) bool { return t.tenant == c.tenant }); i >= 0 { // the others first
		t := a.turns[i]
		a.turns = append(slices.Delete(a.turns, i, i+1), t)
	}
	a.idle = append(a.idle, c.worker)
	waits := a.waiting[c.format]
	delete(a.waiting, c.format)
	f := &format{key: c.format, grammar: m.grammar, err: m.err}
	switch {
	case errors.Is(m.err, errUnwanted):
		for _, w := range waits { // they came since
			a.waiting[c.format] = waits
			a.line(w.req.Tenant, c.format)
		}
		waits = nil
	case m.err == nil:
		a.kept.put(f, m.grammar.Bytes()+f.key.bytes())
	case errors.Is(m.err, scheduler.ErrInvalid): // a lack of time may pass
		a.refused.put(f, max(f.key.bytes(), refusedBytes))
	}
	now := a.sys.now()
	for _, w := range waits {
		if q := &w.req.QueueTimeout; *q > 0 {
			*q = max(*q-(now-w.since), 1) // it goes on at the scheduler
		}
		a.pass(w.submit, f)
	}
	a.start()
}

func (a *formatsActor) pass(m *submit, f *format) {
	if f.err != nil {
		a.sys.door.dismiss(m.stream, scheduler.Ending{Reason: scheduler.Failed, Err: f.err})
		return
	}
	m.req.Format = f.grammar
	a.sys.scheduler.tell(m)
}

// abort ends a request that waits here.
func (a *formatsActor) abort(m *abort) {
	for f, waits := range a.waiting {
		if i := slices.IndexFunc(waits, func(w waiter) bool { return w.stream.id == m.id }); i >= 0 {
			a.sys.door.dismiss(waits[i].stream, scheduler.Ending{Reason: scheduler.Abort, Err: m.err})
			a.keepWaiting(f, slices.Delete(waits, i, i+1))
			return
		}
	}
}
