package actors

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/engine/cpu"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/scheduler"
)

type panickyClose struct{ engine.Backend }

func (p panickyClose) Close() error { p.Backend.Close(); panic("close") }

// A backend that panics in Close must not hang the shutdown.
func TestBackendPanicsInClose(t *testing.T) {
	s, err := Start(Config{Backend: panickyClose{backend(t, cpu.Config{KVTokens: 1024})}, Tokenizer: nano.Tokenizer()})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.Close() }()
	select {
	case err := <-done:
		t.Log(err)
	case <-time.After(time.Minute):
		t.Fatal("Close hangs")
	}
}

// A worker skips a text whose caller has gone. This worker has no tokenizer, so it would panic
// if it tried to encode the text.
func TestTokenizeCanceled(t *testing.T) {
	s := start(t, Config{}, cpu.Config{})
	worker := &tokenizerActor{sys: s}
	left, err := s.requests.enter(1)
	if err != nil {
		t.Fatal(err)
	}
	left.Abort(context.Canceled)
	worker.encode(&encode{stream: left, req: Request{Prompt: prompt}})
	if _, _, e := drain(t, left); e.Reason != scheduler.Abort || !errors.Is(e.Err, context.Canceled) || s.requests.credits() != 0 {
		t.Errorf("ending %+v, %d credits taken", e, s.requests.credits())
	}
	open, err := s.requests.enter(1)
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	worker.encode(&encode{stream: open, req: Request{Prompt: prompt}})
	if _, _, e := drain(t, open); e.Reason != scheduler.Failed || !errors.Is(e.Err, ErrClosed) {
		t.Errorf("ending %+v", e)
	}
}

// The end of the context ends a request even if its caller is so slow that a piece is always
// ready. A request that has ended before keeps its ending.
func TestContextOfASlowCaller(t *testing.T) {
	h := hold(t, cpu.Config{})
	s := start(t, Config{Backend: h}, cpu.Config{})
	h.let(first(2))
	stream, short := open(t, s, Request{Prompt: prompt, MaxTokens: 3000, IgnoreEOS: true}), open(t, s, Request{Prompt: prompt, MaxTokens: 1, IgnoreEOS: true})
	<-stream.wake // there is a piece
	<-short.wake
	for short.runs() {
		<-short.wake
	}
	ctx, cancel := context.WithCancel(patience(t))
	cancel()
	if piece, err := stream.Next(ctx); !errors.Is(err, context.Canceled) || piece.Tokens != nil {
		t.Errorf("%+v, %v", piece, err)
	}
	if piece, err := short.Next(ctx); err != nil || !piece.Final {
		t.Errorf("%+v, %v", piece, err)
	}
	h.let(all)
	if _, _, e := drain(t, stream); e.Reason != scheduler.Abort || !errors.Is(e.Err, context.Canceled) {
		t.Errorf("ending %+v", e)
	}
}

// The bill of a request that Close ended counts the output that was delivered.
func TestBillAfterClose(t *testing.T) {
	h := hold(t, cpu.Config{})
	s := start(t, Config{Backend: h}, cpu.Config{})
	h.let(short(1000))
	stream := open(t, s, Request{Prompt: prompt, MaxTokens: 3000, IgnoreEOS: true})
	piece, err := stream.Next(patience(t))
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	rest, _, e := drain(t, stream)
	if n := len(piece.Tokens) + len(rest); e.OutputTokens != n || !errors.Is(e.Err, ErrClosed) {
		t.Errorf("%d tokens were delivered, the bill says %d: %v", n, e.OutputTokens, e.Err)
	}
}

// Closing at any moment leaks no page, even with a grant in flight.
func TestCloseDuringAGrant(t *testing.T) {
	for range 50 {
		s := start(t, Config{}, cpu.Config{KVTokens: 1024})
		open(t, s, Request{Tokens: []kv.Token{1, 2, 3}, MaxTokens: 3})
		if err := s.Close(); err != nil {
			t.Fatalf("Close says %v", err)
		}
	}
}

// Under -race: a request's slices are the caller's again once Open returns.
func TestSlicesOfCallersAreCopied(t *testing.T) {
	s := start(t, Config{}, cpu.Config{})
	tokens, stop := []kv.Token{1, 2, 3, 4}, []kv.Token{200}
	for i := range 20 {
		stream := open(t, s, Request{Tokens: tokens, MaxTokens: 3, StopTokens: stop, IgnoreEOS: true})
		tokens[0], stop[0] = kv.Token(i+2), 201 // the next request's
		_, _, e := drain(t, stream)
		if want := kv.Token(i + 1); i > 0 && e.Tokens[0] != want {
			t.Errorf("the prompt became %v, it began with %d", e.Tokens, want)
		}
	}
}

// The media of a request are its own once Open returns, even before the scheduler has read them.
func TestMediaOfCallersAreCopied(t *testing.T) {
	s := start(t, Config{}, cpu.Config{})
	busy := make(chan struct{})
	s.scheduler.tell(&look{func(*schedulerActor) { <-busy }})
	media := []kv.Media{{At: 1, Tokens: 2, Hash: 7}}
	stream := open(t, s, Request{Tokens: []kv.Token{1, 2, 3, 4}, Media: media, MaxTokens: 1, IgnoreEOS: true})
	media[0].At = 100 // beyond the prompt
	close(busy)
	if _, _, e := drain(t, stream); e.Err != nil {
		t.Error(e.Err)
	}
}

// The end-of-text tokens of a configuration are the System's own once Start has returned.
func TestEOSOfCallersIsCopied(t *testing.T) {
	plain := start(t, Config{}, cpu.Config{})
	want, _, _ := drain(t, open(t, plain, Request{Prompt: prompt, MaxTokens: 8, IgnoreEOS: true}))
	eos := []kv.Token{want[0]}
	s := start(t, Config{EOS: eos}, cpu.Config{})
	eos[0] = 255 - want[0]
	if _, _, e := drain(t, open(t, s, Request{Prompt: prompt, MaxTokens: 8})); e.Reason != scheduler.Stop || e.OutputTokens != 1 {
		t.Errorf("token %d no longer ends an output: %+v", want[0], e)
	}
}

// Two next turns that are appended to one Ending's tokens don't share memory.
func TestNextTurnsShareNothing(t *testing.T) {
	s := start(t, Config{}, cpu.Config{})
	_, _, e := drain(t, open(t, s, Request{Prompt: prompt, MaxTokens: 3, IgnoreEOS: true}))
	one, other := append(e.Tokens, 1), append(e.Tokens, 2)
	if one[len(one)-1] == other[len(other)-1] {
		t.Error("a next turn has overwritten the other")
	}
}
