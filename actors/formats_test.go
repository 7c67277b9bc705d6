package actors

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coppice-llm/coppice/engine/cpu"
	"github.com/coppice-llm/coppice/grammar"
	"github.com/coppice-llm/coppice/scheduler"
)

// formatsAlone starts a formats actor whose compilers the test plays.
func formatsAlone(t *testing.T, cfg Config) (*System, *formatsActor, func(Request) *Stream) {
	s := start(t, cfg, cpu.Config{})
	a := newFormatsActor(s)
	t.Cleanup(a.release)
	return s, a, func(req Request) *Stream {
		stream, err := s.requests.enter(1)
		if err != nil {
			t.Fatal(err)
		}
		a.need(&needFormat{&submit{stream: stream, req: scheduler.Request{Tenant: req.Tenant, QueueTimeout: req.QueueTimeout}}, req.Format})
		return stream
	}
}

func ended(t *testing.T, stream *Stream, want error) {
	t.Helper()
	if _, err := stream.Next(patience(t)); !errors.Is(err, want) {
		t.Errorf("ended by %v, want %v", err, want)
	}
}

// Each format is compiled once. Requests that stop waiting are dropped at once. Errors of
// invalid formats are cached, timeouts are not.
func TestFormatsAreKept(t *testing.T) {
	s, a, ask := formatsAlone(t, Config{})
	a.idle = nil // compilers are busy
	form := func(text string) Request { return Request{Format: matching(text)} }
	done := func(text string, err error) {
		f := matching(text)
		c := a.compiling[f]
		if c == nil {
			c = &compile{format: f}
			a.remove(f)
		}
		a.compiled(&compiled{compile: c, err: err})
		a.idle, a.turns = nil, nil
	}
	first, second, third := ask(form("a")), ask(form("a")), ask(form("b"))
	if len(a.turns) != 1 || len(a.turns[0].items) != 2 || len(a.waiting[matching("a")]) != 2 {
		t.Fatalf("%+v wait for the compiler, for %+v", a.turns, a.waiting)
	}
	a.abort(&abort{second.id, context.Canceled})
	ended(t, second, context.Canceled)
	fault := fmt.Errorf("%w: no format", scheduler.ErrInvalid)
	done("a", fault)
	ended(t, first, scheduler.ErrInvalid)
	ended(t, ask(form("a")), scheduler.ErrInvalid) // at once
	done("b", ErrFormatTimeout)
	ended(t, third, ErrFormatTimeout)
	fourth := ask(form("b")) // again
	if len(a.waiting[matching("b")]) != 1 {
		t.Error("a timeout is cached")
	}
	a.abort(&abort{fourth.id, context.Canceled})
	ended(t, fourth, context.Canceled)
	for i := range 2 * refusedFormats {
		stream := ask(form(fmt.Sprint("bad", i)))
		done(fmt.Sprint("bad", i), fault)
		ended(t, stream, scheduler.ErrInvalid)
	}
	if len(a.refused.byKey) != refusedFormats || a.refused.byUse.Len() != refusedFormats {
		t.Errorf("%d faults are remembered", len(a.refused.byKey))
	}
	if s.requests.taken != 0 || len(a.waiting)+len(a.compiling) != 0 {
		t.Errorf("%d credits are missing, %v wait", s.requests.taken, a.waiting)
	}
}

// Each tenant has at most one format at a compiler, in whatever order they were requested. A
// compilation that no request waits for is given up.
func TestFormatsOfTenantsTakeTurns(t *testing.T) {
	_, a, ask := formatsAlone(t, Config{})
	defer muteCompilers(a.sys)()
	making := func(want ...string) {
		t.Helper()
		var got []string
		for f := range a.compiling {
			got = append(got, f.Text)
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("at the compilers are %v, want %v", got, want)
		}
	}
	streams := map[string]*Stream{}
	for _, name := range []string{"a0", "a1", "a2", "b0", "c0", "c1"} {
		streams[name] = ask(Request{Tenant: name[:1], Format: matching(name)})
	}
	done := func(name string, err error) {
		a.compiled(&compiled{compile: a.compiling[matching(name)], err: err})
	}
	making("a0", "b0")
	done("a0", errDevice)
	making("b0", "c0") // not a1
	a.abort(&abort{streams["c0"].id, nil})
	if !a.compiling[matching("c0")].unwanted.Load() {
		t.Error("c0 is compiled though no request waits for it")
	}
	again := ask(Request{Tenant: "c", Format: matching("c0")})
	done("c0", errUnwanted)
	making("a1", "b0")
	done("b0", errDevice)
	making("a1", "c1")
	done("c1", errDevice)
	making("a1", "c0") // again
	done("c0", errDevice)
	ended(t, again, errDevice)
	done("a1", errDevice)
	making("a2")
	done("a2", errDevice)
	making()
	if len(a.waiting)+len(a.busy)+len(a.turns) != 0 || len(a.idle) != 2 {
		t.Errorf("left are %v %v %v, idle %v", a.waiting, a.busy, a.turns, a.idle)
	}
}

// A format that two tenants wait for is compiled in the turn of whichever comes first, even if
// it is far down the queue of the tenant that requested it first.
func TestFormatsOfTwoTenants(t *testing.T) {
	_, a, ask := formatsAlone(t, Config{})
	defer muteCompilers(a.sys)()
	form := func(tenant, text string) Request { return Request{Tenant: tenant, Format: matching(text)} }
	ask(form("a", "hard"))
	for i := range 10 {
		ask(form("a", fmt.Sprint("hard", i)))
	}
	both := []*Stream{ask(form("a", "common")), ask(form("b", "common"))}
	if c := a.compiling[matching("common")]; c == nil || c.tenant != "b" || len(a.turns) != 1 || len(a.turns[0].items) != 10 {
		t.Fatalf("b's format is not compiled, but %v", a.compiling)
	}
	both = append(both, ask(form("c", "common")))
	if len(a.turns) != 1 {
		t.Error("it is queued for a second compilation")
	}
	a.compiled(&compiled{compile: a.compiling[matching("common")], err: errDevice})
	for _, stream := range both {
		ended(t, stream, errDevice)
	}
}

// Requests that leave keep no memory: a format that no request waits for is dropped,
// however many formats of its tenant are queued before it.
func TestFormatsAreForgotten(t *testing.T) {
	s, a, ask := formatsAlone(t, Config{})
	defer muteCompilers(a.sys)()
	ask(Request{Format: matching("hard")})
	other := ask(Request{Format: matching("hard too")})
	for i := range 100 {
		text := fmt.Sprint(i, strings.Repeat("x", 1000))
		first, second := ask(Request{Format: matching(text)}), ask(Request{Format: matching(text), QueueTimeout: 1})
		a.abort(&abort{first.id, context.Canceled})
		a.expire()
		ended(t, first, context.Canceled)
		ended(t, second, scheduler.ErrQueueTimeout)
	}
	if len(a.waiting) != 2 || len(a.turns) != 1 || len(a.turns[0].items) != 1 {
		t.Errorf("%d formats are waited for, %d in line", len(a.waiting), len(a.turns[0].items))
	}
	a.abort(&abort{other.id, context.Canceled})
	if len(a.waiting) != 1 || len(a.turns) != 0 || s.requests.credits() != 1 {
		t.Errorf("%d formats are waited for, %d in line, %d credits are taken", len(a.waiting), len(a.turns), s.requests.credits())
	}
}

// Errors of invalid formats are cached by the format's text, within a limit of bytes.
func TestFaultsAreBounded(t *testing.T) {
	_, a, ask := formatsAlone(t, Config{})
	defer muteCompilers(a.sys)()
	for i := range 100 {
		f := matching(fmt.Sprint(i, strings.Repeat("x", 1<<17)))
		stream := ask(Request{Format: f})
		a.compiled(&compiled{compile: a.compiling[f], err: scheduler.ErrInvalid})
		ended(t, stream, scheduler.ErrInvalid)
	}
	kept := 0
	for f := range a.refused.byKey {
		kept += len(f.Text)
	}
	if kept == 0 || kept > refusedFormats*refusedBytes {
		t.Errorf("%d bytes of faulty formats are kept, want at most %d", kept, refusedFormats*refusedBytes)
	}
}

// The time that a request waits for its format counts against its QueueTimeout.
func TestCompilingCountsAsQueueTime(t *testing.T) {
	_, a, ask := formatsAlone(t, Config{})
	defer muteCompilers(a.sys)()
	f := matching("a")
	stream := ask(Request{Format: f, QueueTimeout: time.Hour})
	w := &a.waiting[f][0]
	w.since -= 59 * time.Minute
	submit := w.submit
	c := a.compiling[f]
	g, err := (&compilerActor{a.sys}).compile(c)
	if err != nil {
		t.Fatal(err)
	}
	a.compiled(&compiled{compile: c, grammar: g})
	if left := submit.req.QueueTimeout; left <= 0 || left > time.Minute {
		t.Errorf("at the scheduler it may wait for %v", left)
	}
	ended(t, stream, scheduler.ErrEmptyPrompt) // it has reached the scheduler
}

// muteCompilers replaces the compilers by ones that never answer, until undo is called.
func muteCompilers(s *System) (undo func()) {
	compilers := s.compilers
	deaf := &process{pid: s.spawn("deaf", restartOnPanic, func() receiver { return muteActor{} }).pid}
	s.compilers = []*process{deaf, deaf}
	return func() { s.compilers = compilers }
}

type muteActor struct{}

func (muteActor) receive(self *process, message any) {
	if _, ok := message.(*shutdown); ok {
		self.quit()
	}
}

// Time limits apply to requests that wait for a format.
func TestCompilingDoesNotStopDeadlines(t *testing.T) {
	_, a, ask := formatsAlone(t, Config{})
	a.idle = nil
	late := ask(Request{Format: matching("a"), QueueTimeout: 1})
	patient := ask(Request{Format: matching("a"), QueueTimeout: time.Hour})
	a.expire()
	ended(t, late, scheduler.ErrQueueTimeout)
	if waits := a.waiting[matching("a")]; len(waits) != 1 || waits[0].stream != patient {
		t.Errorf("%d wait", len(waits))
	}
	a.abort(&abort{patient.id, scheduler.ErrAborted})
	ended(t, patient, scheduler.ErrAborted)
	// The same in a whole system, by its alarm, with compilers that never answer.
	s := start(t, Config{}, cpu.Config{})
	defer muteCompilers(s)()
	ended(t, open(t, s, Request{Prompt: prompt, Timeout: 1, Format: matching("a")}), scheduler.ErrDeadline)
}

// A formatCache holds the most recently used formats within its limit of bytes.
func TestFormatCache(t *testing.T) {
	s := newFormatCache(10)
	key := func(i int) grammar.Format { return matching(fmt.Sprint(i)) }
	for i := range 5 {
		s.put(&format{key: key(i)}, 3)
		s.take(key(0))
	}
	s.put(&format{key: key(9)}, 11) // larger than the whole cache
	for i, want := range []bool{true, false, false, true, true} {
		if (s.take(key(i)) != nil) != want {
			t.Errorf("format %d is kept: %v", i, !want)
		}
	}
	if s.size != 9 || s.byUse.Len() != 3 || len(s.byKey) != 3 || s.take(key(9)) != nil {
		t.Errorf("%d formats of size %d", len(s.byKey), s.size)
	}
}
