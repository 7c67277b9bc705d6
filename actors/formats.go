package actors

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/coppice-llm/coppice/grammar"
	"github.com/coppice-llm/coppice/scheduler"
)

// ErrFormatTimeout ends requests whose Format took too long to compile.
var ErrFormatTimeout = errors.New("actors: format takes too long to compile")

// checkFormat returns an error for a format that no compiler can take.
func checkFormat(f grammar.Format) error {
	switch {
	case f == grammar.Format{}:
		return nil
	case f.Language == nil:
		return &scheduler.FieldError{Field: "Format", Err: fmt.Errorf("%w: Format has a Text but no Language", scheduler.ErrInvalid)}
	case !reflect.TypeOf(f.Language).Comparable(): // a key of maps
		return &scheduler.FieldError{Field: "Format", Err: fmt.Errorf("%w: Format.Language is a %T, which can't be compared", scheduler.ErrInvalid, f.Language)}
	}
	return nil
}

// formatsActor has each format compiled once and caches the most recently used ones. Requests
// wait for their format here, not at the scheduler, where they would hold a slot.
type formatsActor struct {
	shares[grammar.Format] // of the compilers: formats not yet compiled; a format may be in the queues of several tenants

	sys       *System
	kept      formatCache                 // compiled grammars
	refused   formatCache                 // errors of invalid formats, apart so that they can't displace grammars
	waiting   map[grammar.Format][]waiter // requests by the format that they wait for
	compiling map[grammar.Format]*compile // formats at a compiler
	alarm     alarm                       // rings at the next time limit of a waiting request
}

// waiter is a request that waits for its format. Both times are on the system's clock.
type waiter struct {
	*submit
	since time.Duration // when the request began to wait
	until time.Duration // when its time limit ends it
	late  error         // the error with which that limit ends it
}

// The cache of invalid formats has room for as many formats as refusedFormats says, if the
// text of none is longer than refusedBytes; longer texts leave room for fewer.
const refusedFormats, refusedBytes = 256, 4 << 10

func newFormatsActor(s *System) *formatsActor {
	a := &formatsActor{
		shares: newShares[grammar.Format](compilers, 1), sys: s, kept: newFormatCache(s.cfg.FormatBytes), refused: newFormatCache(refusedFormats * refusedBytes),
		waiting: make(map[grammar.Format][]waiter), compiling: make(map[grammar.Format]*compile),
	}
	a.alarm.ring = func() { s.formats.tell(&tick{}) }
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

// need passes the request of m on if its format is compiled, ends it if the format is known
// to be invalid or the caller has aborted, and otherwise lets it wait for the format.
func (a *formatsActor) need(m *needFormat) {
	if gone := m.submit.stream.gone.Load(); gone != nil {
		a.sys.requests.dismiss(m.submit.stream, scheduler.Ending{Reason: scheduler.Abort, Err: *gone})
		return
	}
	if f := cmp.Or(a.kept.take(m.format), a.refused.take(m.format)); f != nil {
		a.pass(m.submit, f)
		return
	}
	a.waiting[m.format] = append(a.waiting[m.format], a.waiter(m.submit))
	if a.compiling[m.format] == nil {
		a.add(m.submit.req.Tenant, m.format)
		a.start()
	}
}

// waiter returns the entry for a request that must wait, and sets the alarm for its time
// limit.
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

func (a *formatsActor) compiled(m *compiled) {
	c := m.compile
	delete(a.compiling, c.format)
	a.done(c.tenant, c.worker)
	a.goLast(c.tenant)
	waits := a.waiting[c.format]
	delete(a.waiting, c.format)
	f := &format{key: c.format, grammar: m.grammar, err: m.err}
	switch {
	case errors.Is(m.err, errUnwanted):
		for _, w := range waits { // including those that arrived during the compilation
			a.waiting[c.format] = waits
			a.add(w.req.Tenant, c.format)
		}
		waits = nil
	case m.err == nil:
		a.kept.put(f, m.grammar.Bytes()+len(f.key.Text))
	case errors.Is(m.err, scheduler.ErrInvalid): // only invalid formats are remembered: a timeout may not recur
		a.refused.put(f, max(len(f.key.Text), refusedBytes))
	}
	now := a.sys.now()
	for _, w := range waits {
		if q := &w.req.QueueTimeout; *q > 0 {
			*q = max(*q-(now-w.since), 1) // the rest of the time continues at the scheduler
		}
		a.pass(w.submit, f)
	}
	a.start()
}

func (a *formatsActor) pass(m *submit, f *format) {
	if f.err != nil {
		a.sys.requests.dismiss(m.stream, scheduler.Ending{Reason: scheduler.Failed, Err: f.err})
		return
	}
	m.req.Format = f.grammar
	a.sys.scheduler.tell(m)
}

// start gives formats to the free compilers.
func (a *formatsActor) start() {
	for {
		tenant, f, worker, ok := a.take()
		if !ok {
			return
		}
		c := &compile{worker: worker, tenant: tenant, format: f}
		a.compiling[f] = c
		a.remove(f)
		a.sys.compilers[worker].tell(c)
	}
}

// abort ends a request that waits for its format.
func (a *formatsActor) abort(m *abort) {
	for f, waits := range a.waiting {
		if i := slices.IndexFunc(waits, func(w waiter) bool { return w.stream.id == m.id }); i >= 0 {
			a.sys.requests.dismiss(waits[i].stream, scheduler.Ending{Reason: scheduler.Abort, Err: m.err})
			a.setWaiting(f, slices.Delete(waits, i, i+1))
			return
		}
	}
}

// expire ends the requests that have waited too long.
func (a *formatsActor) expire() {
	a.alarm.rang()
	now, next := a.sys.now(), lastTime
	for f, waits := range a.waiting {
		kept := waits[:0]
		for _, w := range waits {
			if w.until <= now {
				a.sys.requests.dismiss(w.stream, scheduler.Ending{Reason: scheduler.Abort, Err: fmt.Errorf("%w: its format is not compiled yet", w.late)})
				continue
			}
			next = min(next, w.until)
			kept = append(kept, w)
		}
		clear(waits[len(kept):])
		a.setWaiting(f, kept)
	}
	if next < lastTime {
		a.alarm.wakeAt(now, next)
	}
}

// setWaiting replaces the list of requests that wait for the format f. If waits is empty,
// no request needs the format: it leaves the queues, or its compiler is told to stop.
func (a *formatsActor) setWaiting(f grammar.Format, waits []waiter) {
	if len(waits) > 0 {
		a.waiting[f] = waits
		return
	}
	delete(a.waiting, f)
	if c := a.compiling[f]; c != nil {
		c.unwanted.Store(true)
	} else {
		a.remove(f)
	}
}

// release stops the timer, however the actor ended.
func (a *formatsActor) release() { a.alarm.stop() }
