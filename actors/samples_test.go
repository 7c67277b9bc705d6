package actors

import (
	"errors"
	"slices"
	"testing"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/engine/cpu"
	"github.com/coppice-llm/coppice/scheduler"
)

// Sample 0 is the output that the request would have alone; the others have their own seeds.
// The prompt is computed once, plus one token per further sample: each needs the logits of the
// prompt's last token.
func TestSamplesShareTheirPrompt(t *testing.T) {
	for inflight := 1; inflight <= 2; inflight++ {
		req := Request{Prompt: prompt, MaxTokens: 15, IgnoreEOS: true, Digest: true, Sampling: engine.SamplingParams{Temperature: 1, Seed: 7}}
		alone := start(t, Config{}, cpu.Config{})
		want := drainAll(t, open(t, alone, req), 1)[0]

		s := start(t, Config{Scheduler: scheduler.Config{MaxInflight: inflight}}, cpu.Config{})
		req.Samples = 3
		got := drainAll(t, open(t, s, req), 3)
		if g := got[0]; !slices.Equal(g.tokens, want.tokens) || g.text != want.text || g.ending.LogitDigest != want.ending.LogitDigest {
			t.Errorf("sample 0 is %v %q, alone %v %q", g.tokens, g.text, want.tokens, want.text)
		}
		for i, g := range got {
			e := g.ending
			if e.Reason != scheduler.Length || len(g.tokens) != 15 || e.OutputTokens != 15 || !slices.Equal(e.Tokens[e.PromptTokens:], g.tokens) {
				t.Errorf("sample %d: %d tokens, ending %+v", i, len(g.tokens), e)
			}
			if i > 0 && (slices.Equal(g.tokens, want.tokens) || e.CachedTokens != e.PromptTokens-1) {
				t.Errorf("sample %d: %v, like sample 0? %d of %d cached", i, g.tokens, e.CachedTokens, e.PromptTokens)
			}
		}
		if slices.Equal(got[1].tokens, got[2].tokens) {
			t.Errorf("samples 1 and 2 are both %v", got[1].tokens)
		}
		st, err := s.Stats(patience(t))
		if err != nil {
			t.Fatal(err)
		}
		if n := want.ending.PromptTokens + 2; st.Engine.GivenTokens != n || st.Engine.DeferredTokens != 3*14 {
			t.Errorf("engine ran %+v, want %d given and 42 deferred", st.Engine, n)
		}
		conserve(t, s)
	}
}

// Each sample is detokenized on its own: its text equals that of its tokens decoded alone.
func TestSamplesHaveTheirOwnText(t *testing.T) {
	s := start(t, Config{}, cpu.Config{})
	outputs := drainAll(t, open(t, s, Request{Prompt: prompt, MaxTokens: 40, IgnoreEOS: true, Samples: 5,
		Sampling: engine.SamplingParams{Temperature: 2, Seed: 3}}), 5)
	for i, o := range outputs {
		detok := nano.Tokenizer().NewDetokenizer()
		var text []byte
		for _, token := range o.tokens {
			text = detok.Next(text, token)
		}
		if text = detok.Flush(text); o.text != string(text) || len(text) == 0 {
			t.Errorf("sample %d says %q, its tokens %q", i, o.text, text)
		}
	}
}

// A caller that reads nothing until the end gets one piece of each sample.
func TestSlowReaderGetsAPieceOfEachSample(t *testing.T) {
	s := start(t, Config{}, cpu.Config{})
	stream := open(t, s, Request{Prompt: prompt, MaxTokens: 30, IgnoreEOS: true, Samples: 3})
	for !func() bool { stream.mu.Lock(); defer stream.mu.Unlock(); return stream.open == 0 }() {
		if _, err := s.Stats(patience(t)); err != nil { // a round trip, instead of a sleep
			t.Fatal(err)
		}
	}
	for i := range 3 {
		piece, err := stream.Next(patience(t))
		if err != nil || piece.Sample != i || len(piece.Tokens) != 30 || piece.Ending == nil || piece.Final != (i == 2) {
			t.Errorf("piece %d, %v: %+v", i, err, piece)
		}
	}
}

// Samples don't delay each other: Next takes their pieces in turn.
func TestSamplesAlternate(t *testing.T) {
	h := hold(t, cpu.Config{})
	// The first grant has all pages, so that the third sample does not wait for another grant
	// while the first one generates.
	s := start(t, Config{Backend: h, Scheduler: scheduler.Config{LeaseBulkPages: 256, LeaseHighPages: 256}}, cpu.Config{})
	h.let(first(3))
	stream := open(t, s, Request{Prompt: prompt, MaxTokens: 1000, IgnoreEOS: true, Samples: 3})
	for seen := map[int]bool{}; len(seen) < 3; {
		piece, err := stream.Next(patience(t))
		if err != nil {
			t.Fatal(err)
		}
		seen[piece.Sample] = true
	}
	// Abort ends all three samples, each once.
	stream.Abort(nil)
	h.let(all)
	for i, o := range drainAll(t, stream, 3) {
		if e := o.ending; e.Reason != scheduler.Abort || !errors.Is(e.Err, scheduler.ErrAborted) || e.OutputTokens == 0 {
			t.Errorf("sample %d: ending %+v", i, e)
		}
	}
	conserve(t, s)
}

// A refusal or an end of a request ends each of its samples.
func TestSamplesEndTogether(t *testing.T) {
	h := hold(t, cpu.Config{KVTokens: 256})
	s := start(t, Config{Backend: h}, cpu.Config{})
	for name, tc := range map[string]struct {
		stream *Stream
		want   error
	}{
		"refused by the scheduler": {open(t, s, Request{Prompt: "a", MaxTokens: 400, Samples: 3}), scheduler.ErrTooLarge},
		"given up before it began": {open(t, s, Request{Prompt: prompt, Samples: 3}), scheduler.ErrAborted},
	} {
		if tc.want == scheduler.ErrAborted {
			tc.stream.Abort(nil)
			h.let(all)
		}
		for i, o := range drainAll(t, tc.stream, 3) {
			if !errors.Is(o.ending.Err, tc.want) {
				t.Errorf("%s: sample %d ended by %v", name, i, o.ending.Err)
			}
		}
	}
	h.let(short(100))
	stream := open(t, s, Request{Prompt: prompt, MaxTokens: 150, IgnoreEOS: true, Samples: 3})
	s.Close()
	for i, o := range drainAll(t, stream, 3) {
		if e := o.ending; !errors.Is(e.Err, ErrClosed) || e.OutputTokens != len(o.tokens) {
			t.Errorf("closed: sample %d has %d tokens and ending %+v", i, len(o.tokens), e)
		}
	}
}

// A sample that stops does not end the others.
func TestSamplesStopEachByItself(t *testing.T) {
	s := start(t, Config{}, cpu.Config{})
	req := Request{Prompt: prompt, MaxTokens: 25, IgnoreEOS: true, Samples: 4, Sampling: engine.SamplingParams{Temperature: 1.5, Seed: 11}}
	whole := drainAll(t, open(t, s, req), 4)
	req.StopTokens = whole[2].tokens[3:4]
	stops := 0
	for i, o := range drainAll(t, open(t, s, req), 4) {
		want, reason := whole[i].tokens, scheduler.Length
		if at := slices.Index(want, req.StopTokens[0]); at >= 0 {
			want, reason = want[:at+1], scheduler.Stop
			stops++
		}
		if !slices.Equal(o.tokens, want) || o.ending.Reason != reason {
			t.Errorf("sample %d: %v ended by %v, want %v by %v", i, o.tokens, o.ending.Reason, want, reason)
		}
	}
	if stops == 0 || stops == 4 {
		t.Errorf("%d of 4 stopped: choose another seed", stops)
	}
}

// Each sample takes a credit; all come back with the last ending.
func TestSamplesTakeCredits(t *testing.T) {
	h := hold(t, cpu.Config{})
	s := start(t, Config{Backend: h, MaxRequests: 4}, cpu.Config{})
	for _, n := range []int{-1, 5} {
		if _, err := s.Open(Request{Prompt: prompt, Samples: n}); !errors.Is(err, scheduler.ErrInvalid) {
			t.Errorf("%d samples: %v", n, err)
		}
	}
	for range 3 {
		h.let(none)
		stream := open(t, s, Request{Prompt: prompt, MaxTokens: 1000, IgnoreEOS: true, Samples: 3})
		if _, err := s.Open(Request{Prompt: prompt, Samples: 2}); !errors.Is(err, scheduler.ErrQueueFull) {
			t.Errorf("five of four credits: %v", err)
		}
		one := open(t, s, Request{Prompt: prompt, MaxTokens: 1})
		stream.Abort(nil)
		h.let(all)
		drainAll(t, stream, 3)
		drain(t, one)
		if n := s.requests.credits(); n != 0 {
			t.Errorf("all have ended, and %d credits are taken", n)
		}
	}
}

// However a request ends, its credits are back before the caller sees the ending: a caller at
// the limit may then open the next request at once.
func TestCreditsComeBeforeTheEnding(t *testing.T) {
	s := start(t, Config{Tokenizers: 1}, cpu.Config{})
	e := scheduler.Ending{Reason: scheduler.Abort, Err: scheduler.ErrAborted}
	for name, end := range map[string]func(stream *Stream){
		"deliverer": func(stream *Stream) {
			s.deliverer.tell(&deliver{[]delivery{{stream, scheduler.Output{Request: stream.id, Ending: e, Final: true}}}})
		},
		"formats": func(stream *Stream) {
			stream.gone.Store(&e.Err)
			s.formats.tell(&needFormat{&submit{stream: stream}, matching("a")})
		},
		"tokenizer": func(stream *Stream) {
			broken := s.spawn("tokenizer", restartOnPanic, func() receiver { return &tokenizerActor{sys: s} })
			broken.tell(&encode{stream: stream, req: Request{Prompt: prompt}})
		},
	} {
		stream, err := s.requests.enter(1)
		if err != nil {
			t.Fatal(err)
		}
		func() {
			stream.mu.Lock() // so that no actor can end it
			defer stream.mu.Unlock()
			end(stream)
			credits(t, s)
		}()
		if _, _, e := drain(t, stream); e.Err == nil {
			t.Errorf("%s: ending %+v", name, e)
		}
	}
}
