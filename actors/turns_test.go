package actors

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice/engine/cpu"
	"github.com/coppice-llm/coppice/scheduler"
)

// TestTenantsTakeTurns: a tenant with many texts delays another tenant by one text, and a
// tenant with none at a worker goes first.
func TestTenantsTakeTurns(t *testing.T) {
	s := start(t, Config{}, cpu.Config{})
	order := make(chan string, 16)
	s.workers = nil
	for range 2 {
		s.workers = append(s.workers, s.spawn("clerk", stopOnPanic, func() receiver { return clerk(order) }))
	}
	a := newTurnsActor(s, 2)
	send := func(tenant string) { a.receive(nil, &encode{tenant: tenant}) }
	done := func(tenant string, worker int) { a.receive(nil, &encoded{worker, tenant}) }
	takes := func(want string) {
		t.Helper()
		if got := <-order; got != want {
			t.Errorf("%q is encoded, want %q", got, want)
		}
	}
	for range 4 {
		send("big")
	}
	takes("big")
	takes("big")
	send("small")
	send("other")
	send("small")
	done("big", 0)
	takes("small") // although big has waited longer: big has one at the other worker
	done("big", 1)
	takes("big") // which has waited longest and has none at a worker now
	done("big", 1)
	takes("other")
	done("other", 1)
	takes("big") // small has one at the other worker
	done("small", 0)
	takes("small")
	if len(a.turns) != 0 {
		t.Errorf("%d tenants wait", len(a.turns))
	}
}

// clerk receives texts and ignores them.
type clerk chan string

func (c clerk) receive(self *process, message any) {
	switch m := message.(type) {
	case *encode:
		c <- m.tenant
	case *shutdown:
		self.quit()
	}
}

// TestTooLongIsNotEncoded: the encoding of a text with more tokens than any prompt may have
// stops once that is known, with the error that its tokens would get.
func TestTooLongIsNotEncoded(t *testing.T) {
	s := start(t, Config{}, cpu.Config{KVTokens: 512})
	long := strings.Repeat("What is light? ", 1<<16)
	for _, tc := range []struct {
		req  Request
		want error
	}{
		{Request{Prompt: long}, scheduler.ErrTooLarge}, {Request{Prompt: long, Tokens: light}, scheduler.ErrTooLarge},
		{Request{Prompt: strings.Repeat("the", 1<<20)}, scheduler.ErrTooLarge},
	} {
		_, _, e := drain(t, open(t, s, tc.req))
		field := (*scheduler.FieldError)(nil)
		if e.Reason != scheduler.Failed || !errors.Is(e.Err, tc.want) || !errors.As(e.Err, &field) || field.Field != "Prompt" || !strings.Contains(e.Err.Error(), "more than 512") || len(e.Tokens) != 0 {
			t.Errorf("ending %+v", e)
		}
	}
	tokens := nano.Tokenizer().Encode(nil, long)
	for n, want := range map[int]error{511: nil, 512: scheduler.ErrTooLarge} { // the last token needs room, too
		text := string(nano.Tokenizer().Decode(nil, tokens[:n], false))
		if got := len(nano.Tokenizer().Encode(nil, text)); got != n {
			t.Fatalf("%d tokens, want %d", got, n)
		}
		_, _, e := drain(t, open(t, s, Request{Prompt: text, Rendered: true, MaxTokens: 2}))
		if want == nil && e.Err != nil || !errors.Is(e.Err, want) {
			t.Errorf("%d tokens: %v", n, e.Err)
		}
	}
	credits(t, s)
}

// TestTokenize: texts are encoded like prompts, at any length unless Bounded, until the system
// ends.
func TestTokenize(t *testing.T) {
	s := start(t, Config{}, cpu.Config{KVTokens: 512})
	long := strings.Repeat("What is light? ", 4000)
	got, err := s.Tokenize(t.Context(), Text{Text: long, Rendered: true})
	if want := nano.Tokenizer().Encode(nil, long); err != nil || len(got) != len(want) {
		t.Errorf("%d tokens, want %d: %v", len(got), len(want), err)
	}
	if _, err := s.Tokenize(t.Context(), Text{Text: long, Bounded: true}); !errors.Is(err, scheduler.ErrTooLarge) {
		t.Errorf("%v", err)
	}
	gone, leave := context.WithCancel(t.Context())
	leave()
	for range 100 {
		if _, err := s.Tokenize(gone, Text{Text: long}); err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
	}
	s.Close()
	if _, err := s.Tokenize(t.Context(), Text{Text: "x"}); !errors.Is(err, ErrClosed) {
		t.Errorf("after the end: %v", err)
	}
}

// TestEnter: work that is not a request takes a credit, too.
func TestEnter(t *testing.T) {
	s := start(t, Config{MaxRequests: 1}, cpu.Config{})
	leave, err := s.Enter()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Open(Request{Tokens: light}); !errors.Is(err, scheduler.ErrQueueFull) {
		t.Errorf("a second one: %v", err)
	}
	leave()
	if _, _, e := drain(t, open(t, s, Request{Tokens: light, MaxTokens: 1})); e.Err != nil {
		t.Error(e.Err)
	}
	s.Close()
	if _, err := s.Enter(); !errors.Is(err, ErrClosed) {
		t.Errorf("after the end: %v", err)
	}
}
