package actors

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/coppice-llm/coppice/engine/cpu"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/radixcache"
	"github.com/coppice-llm/coppice/radixcache/missratio"
	"github.com/coppice-llm/coppice/scheduler"
)

// These wrap Ask the way package coppice's Node does.

func (s *System) waiting(ctx context.Context) ([]scheduler.Wait, error) {
	return Ask(ctx, s, func(core *scheduler.Scheduler, _ time.Duration) []scheduler.Wait { return core.Waiting(nil) })
}

func (s *System) running(ctx context.Context) ([]scheduler.Run, error) {
	return Ask(ctx, s, func(core *scheduler.Scheduler, now time.Duration) []scheduler.Run { return core.Running(now, nil) })
}

// try calls the function at with Ask, and returns the error of Ask, or that of the
// function.
func (s *System) try(t *testing.T, at func(core *scheduler.Scheduler, now time.Duration) error) error {
	t.Helper()
	failed, err := Ask(patience(t), s, at)
	return errors.Join(failed, err)
}

func (s *System) pin(t *testing.T, tokens []kv.Token, d time.Duration) error {
	return s.try(t, func(core *scheduler.Scheduler, now time.Duration) error {
		return core.PinPrefix(now, kv.Namespace{}, tokens, d)
	})
}

func (s *System) unpin(t *testing.T, tokens []kv.Token) error {
	return s.try(t, func(core *scheduler.Scheduler, _ time.Duration) error {
		return core.UnpinPrefix(kv.Namespace{}, tokens)
	})
}

func (s *System) hitRates(t *testing.T, capacities ...int) ([]float64, error) {
	return Ask(patience(t), s, func(core *scheduler.Scheduler, _ time.Duration) []float64 {
		return core.Cache().HitRates(capacities, nil)
	})
}

func (s *System) flushCache(t *testing.T) error {
	return s.try(t, func(core *scheduler.Scheduler, _ time.Duration) error { core.FlushCache(); return nil })
}

// A pinned prefix survives evictions until its time has passed or it is unpinned; a flush
// forgets all pins.
func TestPinPrefix(t *testing.T) {
	s := start(t, Config{Scheduler: scheduler.Config{PinnedTokens: 64, Curve: missratio.New(missratio.DefaultSamples)}}, cpu.Config{PageTokens: 4, KVTokens: 256})
	system := nano.Tokenizer().EncodePrompt(nil, prompt)
	system = system[:len(system)/4*4]
	ask := func(first kv.Token) int {
		t.Helper()
		_, _, e := drain(t, open(t, s, Request{Tokens: append(append([]kv.Token(nil), system...), first), MaxTokens: 2, IgnoreEOS: true}))
		if e.Err != nil {
			t.Fatal(e.Err)
		}
		return e.CachedTokens
	}
	crowd := func() {
		for i := range kv.Token(12) {
			other := make([]kv.Token, 60)
			for j := range other {
				other[j] = i + 30
			}
			drain(t, open(t, s, Request{Tokens: other, MaxTokens: 2, IgnoreEOS: true}))
		}
	}
	pin := func(d time.Duration) error { return s.pin(t, system, d) }
	if err := pin(0); !errors.Is(err, radixcache.ErrNotCached) {
		t.Errorf("before it is cached: %v", err)
	}
	ask(1)
	crowd()
	if n := ask(2); n != 0 {
		t.Fatalf("%d tokens were cached all the same: the crowd is too small", n)
	}
	if err := pin(0); err != nil {
		t.Fatal(err)
	}
	crowd()
	if n := ask(3); n != len(system) {
		t.Errorf("pinned: %d of %d tokens are cached", n, len(system))
	}
	if err := s.unpin(t, system); err != nil {
		t.Error(err)
	}
	if err := s.unpin(t, system); !errors.Is(err, radixcache.ErrNotCached) {
		t.Errorf("let go twice: %v", err)
	}
	crowd()
	if n := ask(4); n != 0 {
		t.Errorf("let go: %d tokens are cached", n)
	}
	if err := pin(1); err != nil { // it expires at the next step
		t.Error(err)
	}
	crowd()
	if n := ask(5); n != 0 {
		t.Errorf("its time is over: %d tokens are cached", n)
	}
	if err := pin(-1); !errors.Is(err, scheduler.ErrInvalid) {
		t.Errorf("for less than nothing: %v", err)
	}
	if err := s.pin(t, []kv.Token{1 << 30}, 0); !errors.Is(err, scheduler.ErrInvalid) {
		t.Errorf("a token that is none: %v", err)
	}
	rates, err := s.hitRates(t, 0, 64, 1<<20)
	if err != nil || len(rates) != 3 || rates[0] != 0 || rates[2] <= rates[1] {
		t.Errorf("hit rates %v, %v", rates, err)
	}
	if err := s.flushCache(t); err != nil {
		t.Error(err)
	}
	if n := ask(6); n != 0 {
		t.Errorf("flushed: %d tokens are cached", n)
	}
	// A request that does not fit with the pinned prefixes is refused.
	_, _, e := drain(t, open(t, s, Request{Tokens: system, MaxTokens: 256 - 64 - len(system) + 2}))
	if !errors.Is(e.Err, scheduler.ErrTooLarge) {
		t.Errorf("too large: %v", e.Err)
	}
	conserve(t, s)

	off := start(t, Config{Scheduler: scheduler.Config{DisableCache: true}}, cpu.Config{})
	if err := off.pin(t, system, 0); !errors.Is(err, scheduler.ErrNoCache) {
		t.Errorf("without a cache: %v", err)
	}
	if err := off.flushCache(t); err != nil {
		t.Error(err)
	}
}

// Running lists the requests that have a slot.
func TestRunning(t *testing.T) {
	h := hold(t, cpu.Config{})
	s := start(t, Config{Backend: h, Scheduler: scheduler.Config{MaxRunning: 2}}, cpu.Config{})
	h.let(first(1))
	stream := open(t, s, Request{Prompt: prompt, MaxTokens: 3000, IgnoreEOS: true, Tenant: "a"})
	if _, err := stream.Next(patience(t)); err != nil {
		t.Fatal(err)
	}
	runs, err := s.running(patience(t))
	if err != nil || len(runs) != 1 || runs[0].Tenant != "a" || runs[0].OutputTokens == 0 || runs[0].ComputedTokens < runs[0].PromptTokens || runs[0].Age <= 0 {
		t.Errorf("running %+v, %v", runs, err)
	}
	stream.Abort(nil)
	h.let(all)
	drain(t, stream)
	if runs, err = s.running(patience(t)); err != nil || len(runs) != 0 {
		t.Errorf("running %+v, %v", runs, err)
	}
}
