package actors

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/engine/cpu"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/scheduler"
)

const prompt = "The colours of light are not qualifications of light, but original properties."

func TestTextInTextOut(t *testing.T) {
	s := start(t, Config{}, cpu.Config{})
	tokens, text, e := drain(t, open(t, s, Request{Prompt: prompt, MaxTokens: 20, IgnoreEOS: true}))
	if e.Reason != scheduler.Length || len(tokens) != 20 || e.OutputTokens != 20 {
		t.Errorf("%d tokens, ending %+v", len(tokens), e)
	}
	if want := strings.ToValidUTF8(string(nano.Tokenizer().Decode(nil, tokens, true)), "\ufffd"); !utf8.ValidString(text) || len(text) == 0 || len(text) < len(want) {
		t.Errorf("text %q, the tokens say %q", text, want)
	}
	if want := nano.Tokenizer().EncodePrompt(nil, prompt); !slices.Equal(e.Tokens, append(want, tokens...)) || e.PromptTokens != len(want) {
		t.Errorf("all tokens %v, want %v and the output", e.Tokens, want)
	}
	if e.FirstToken <= 0 || e.Total < e.FirstToken {
		t.Errorf("first token after %v of %v", e.FirstToken, e.Total)
	}
	conserve(t, s)
}

// A follow-up request made of an Ending's tokens finds all of them cached but the last, which
// was never run.
func TestConversationHitsItsPrefix(t *testing.T) {
	s := start(t, Config{}, cpu.Config{})
	_, _, first := drain(t, open(t, s, Request{Prompt: prompt, MaxTokens: 9, IgnoreEOS: true}))
	past := first.Tokens
	_, _, second := drain(t, open(t, s, Request{Tokens: past, Prompt: " And why?", MaxTokens: 3, IgnoreEOS: true}))
	if second.CachedTokens != len(past)-1 {
		t.Errorf("%d tokens cached of a past of %d", second.CachedTokens, len(past))
	}
	st, err := s.Stats(patience(t))
	if err != nil {
		t.Fatal(err)
	}
	given := first.PromptTokens + second.PromptTokens - second.CachedTokens
	if st.Engine.GivenTokens != given || st.Engine.DeferredTokens != 8+2 {
		t.Errorf("engine ran %+v, want %d given and 10 deferred", st.Engine, given)
	}
}

func TestStopTokenIsNotText(t *testing.T) {
	s := start(t, Config{}, cpu.Config{})
	tokens, text, _ := drain(t, open(t, s, Request{Prompt: prompt, MaxTokens: 12, IgnoreEOS: true}))
	stop := tokens[5]
	at := slices.Index(tokens, stop)
	got, cut, e := drain(t, open(t, s, Request{Prompt: prompt, MaxTokens: 12, IgnoreEOS: true, StopTokens: []kv.Token{stop}}))
	if e.Reason != scheduler.Stop || !slices.Equal(got, tokens[:at+1]) {
		t.Errorf("tokens %v, ending %+v, want %v", got, e, tokens[:at+1])
	}
	if !strings.HasPrefix(text, strings.TrimRight(cut, "\ufffd")) || len(cut) >= len(text) {
		t.Errorf("text %q is no proper start of %q", cut, text)
	}
}

// A caller that reads only at the end gets one merged piece.
func TestSlowReaderGetsMergedPieces(t *testing.T) {
	s := start(t, Config{}, cpu.Config{})
	stream := open(t, s, Request{Prompt: prompt, MaxTokens: 30, IgnoreEOS: true})
	for !func() bool { stream.mu.Lock(); defer stream.mu.Unlock(); return stream.open == 0 }() {
		if _, err := s.Stats(patience(t)); err != nil { // a round trip, instead of a sleep
			t.Fatal(err)
		}
	}
	piece, err := stream.Next(patience(t))
	if err != nil || len(piece.Tokens) != 30 || piece.Ending == nil {
		t.Errorf("%d tokens, ending %v, %v in the first piece", len(piece.Tokens), piece.Ending, err)
	}
}

func TestRefusesAboveMaxRequests(t *testing.T) {
	h := hold(t, cpu.Config{})
	s := start(t, Config{Backend: h, MaxRequests: 2}, cpu.Config{})
	a := open(t, s, Request{Prompt: prompt, MaxTokens: 3000, IgnoreEOS: true})
	b := open(t, s, Request{Prompt: prompt, MaxTokens: 3000, IgnoreEOS: true})
	if _, err := s.Open(Request{Prompt: prompt}); !errors.Is(err, scheduler.ErrQueueFull) {
		t.Fatalf("a third request: %v", err)
	}
	a.Abort(nil)
	b.Abort(nil)
	h.let(all)
	if _, _, e := drain(t, a); e.Reason != scheduler.Abort || !errors.Is(e.Err, scheduler.ErrAborted) {
		t.Errorf("ending %+v", e)
	}
	drain(t, b)
	conserve(t, s)
	_, _, e := drain(t, open(t, s, Request{Prompt: prompt, MaxTokens: 1}))
	if e.Err != nil {
		t.Errorf("after credits came back: %v", e.Err)
	}
}

func TestRefusals(t *testing.T) {
	s := start(t, Config{}, cpu.Config{KVTokens: 64})
	nan := float32(0)
	nan /= nan
	for _, tc := range []struct {
		name string
		req  Request
		want error
	}{
		{"empty", Request{}, scheduler.ErrEmptyPrompt},
		{"longer than the pool", Request{Prompt: strings.Repeat(prompt, 3)}, scheduler.ErrTooLarge},
		{"output beyond the pool", Request{Prompt: "a", MaxTokens: 70}, scheduler.ErrTooLarge},
		{"longer than the model", Request{Tokens: make([]kv.Token, nano.Config().MaxPositions+1)}, scheduler.ErrPromptTooLong},
		{"negative output", Request{Prompt: "a", MaxTokens: -1}, scheduler.ErrInvalid},
		{"token out of range", Request{Tokens: []kv.Token{9999}}, scheduler.ErrInvalid},
		{"negative temperature", Request{Prompt: "a", Sampling: engine.SamplingParams{Temperature: -1}}, scheduler.ErrInvalid},
		{"NaN temperature", Request{Prompt: "a", Sampling: engine.SamplingParams{Temperature: nan}}, scheduler.ErrInvalid},
		{"NaN top-p", Request{Prompt: "a", Sampling: engine.SamplingParams{TopP: nan}}, scheduler.ErrInvalid},
		{"negative top-k", Request{Prompt: "a", Sampling: engine.SamplingParams{TopK: -2}}, scheduler.ErrInvalid},
	} {
		t.Run(tc.name, func(t *testing.T) {
			stream, err := s.Open(tc.req)
			if err == nil {
				_, _, e := drain(t, stream)
				err = e.Err
			}
			if !errors.Is(err, tc.want) {
				t.Errorf("error %v, want %v", err, tc.want)
			}
		})
	}
	conserve(t, s)
}

// TestCancelInEveryPhase aborts requests while they wait, while their prompt is computed and
// while they decode; other requests are not affected.
func TestCancelInEveryPhase(t *testing.T) {
	for inflight := 1; inflight <= 2; inflight++ {
		t.Run(fmt.Sprint(inflight, " in flight"), func(t *testing.T) {
			cancelInEveryPhase(t, scheduler.Config{MaxRunning: 1, StepTokens: 1, MaxInflight: inflight})
		})
	}
}

func cancelInEveryPhase(t *testing.T, cfg scheduler.Config) {
	h := hold(t, cpu.Config{PageTokens: 4})
	s := start(t, Config{Backend: h, Scheduler: cfg}, cpu.Config{})
	h.let(all)
	want, _, _ := drain(t, open(t, s, Request{Prompt: "Light", MaxTokens: 5, IgnoreEOS: true}))
	for _, phase := range []string{"tokenizing", "queued", "prefill", "decode"} {
		t.Run(phase, func(t *testing.T) {
			h.let(none)
			blocker := open(t, s, Request{Prompt: strings.Repeat(phase+prompt, 3), MaxTokens: 500, IgnoreEOS: true})
			victim := blocker
			gauges(t, s, 1, 0) // the first chunk of its prompt is done
			switch phase {
			case "tokenizing":
				var err error
				if victim, err = s.requests.enter(1); err != nil {
					t.Fatal(err)
				}
			case "queued":
				victim = open(t, s, Request{Prompt: prompt})
				gauges(t, s, 1, 1)
			case "decode":
				h.let(first(1))
				if _, err := blocker.Next(patience(t)); err != nil {
					t.Fatal(err)
				}
			}
			ctx, cancel := context.WithCancel(patience(t))
			cancel()
			for {
				if _, err := victim.Next(ctx); err != nil {
					if !errors.Is(err, context.Canceled) {
						t.Errorf("Next says %v", err)
					}
					break
				}
			}
			switch phase {
			case "tokenizing":
				s.workers[0].tell(&encode{stream: victim, req: Request{Prompt: prompt}})
			case "prefill", "decode":
				h.let(all) // it ends with the step in flight
			}
			if _, _, e := drain(t, victim); e.Reason != scheduler.Abort || !errors.Is(e.Err, context.Canceled) {
				t.Errorf("ending %+v", e)
			}
			blocker.Abort(nil)
			h.let(all)
			drain(t, open(t, s, Request{Prompt: "wait for the end of it", MaxTokens: 1}))
			conserve(t, s)
			got, _, _ := drain(t, open(t, s, Request{Prompt: "Light", MaxTokens: 5, IgnoreEOS: true}))
			if !slices.Equal(got, want) {
				t.Errorf("later answer %v, want %v", got, want)
			}
		})
	}
}

func TestCloseWithRequestsOpen(t *testing.T) {
	h := hold(t, cpu.Config{})
	s := start(t, Config{Backend: h, Scheduler: scheduler.Config{MaxRunning: 2}}, cpu.Config{})
	h.let(short(1000))
	var streams []*Stream
	for i := range 8 {
		streams = append(streams, open(t, s, Request{Prompt: prompt, MaxTokens: 3000, IgnoreEOS: true}))
		if i > 0 {
			continue
		}
		if _, err := streams[0].Next(patience(t)); err != nil { // it runs first
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for i, stream := range streams {
		if _, _, e := drain(t, stream); e.Reason != scheduler.Failed || !errors.Is(e.Err, ErrClosed) {
			t.Errorf("stream %d: ending %+v", i, e)
		}
	}
	if _, err := s.Open(Request{Prompt: prompt}); !errors.Is(err, ErrClosed) {
		t.Errorf("open after close: %v", err)
	}
	st, err := s.Stats(patience(t))
	if err != nil || st.LeakedPages != 0 || st.Scheduler.OutputTokens == 0 {
		t.Errorf("stats after close: %+v, %v", st, err)
	}
	if err := s.Close(); err != nil {
		t.Errorf("second close: %v", err)
	}
}

func TestStartRefusesConfig(t *testing.T) {
	if _, err := Start(Config{}); err == nil || !strings.Contains(err.Error(), "Backend") {
		t.Errorf("no backend: %v", err)
	}
	b := backend(t, cpu.Config{KVTokens: 64})
	defer b.Close()
	_, err := Start(Config{Backend: b, MaxRequests: -1, EventRing: -1, Scheduler: scheduler.Config{StepTokens: -5}})
	for _, field := range []string{"MaxRequests", "EventRing"} {
		if err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("error %v does not name %s", err, field)
		}
	}
	if _, err := Start(Config{Backend: b, EventRing: 1<<30 + 1}); err == nil || !strings.Contains(err.Error(), "EventRing is 1073741825, want 1 to 1073741824") {
		t.Errorf("error %v does not say what EventRing may be", err)
	}
	if _, err := Start(Config{Backend: b, Scheduler: scheduler.Config{StepTokens: -5}}); err == nil || !strings.Contains(err.Error(), "StepTokens is -5") {
		t.Errorf("error %v does not name StepTokens", err)
	}
}

// TestManyCallers opens, reads and aborts requests from many goroutines.
func TestManyCallers(t *testing.T) {
	s := start(t, Config{}, cpu.Config{PageTokens: 4, KVTokens: 2048})
	var callers sync.WaitGroup
	for c := range 16 {
		callers.Go(func() {
			for i := range 6 {
				stream, err := s.Open(Request{Prompt: prompt[:10+(c*7+i)%60], MaxTokens: 1 + (c+i)%9, IgnoreEOS: true})
				if err != nil {
					t.Error(err)
					return
				}
				if (c+i)%5 == 0 {
					stream.Abort(nil)
				}
				drain(t, stream)
			}
		})
	}
	callers.Wait()
	conserve(t, s)
}
