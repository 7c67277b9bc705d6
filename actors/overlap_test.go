package actors

import (
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/engine/cpu"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/scheduler"
)

// output is the output of one sample.
type output struct {
	tokens []kv.Token
	text   string
	ending *Ending
}

// drainAll reads a stream of several samples to its end and checks that each has exactly one
// ending, and that the last of the endings is in the final piece.
func drainAll(t *testing.T, stream *Stream, samples int) []output {
	t.Helper()
	ctx := patience(t)
	outputs, open := make([]output, samples), samples
	for {
		piece, err := stream.Next(ctx)
		if ctx.Err() != nil {
			t.Fatal("a request hangs")
		}
		if errors.Is(err, io.EOF) && piece.Ending == nil {
			break
		}
		o := &outputs[piece.Sample]
		if o.ending != nil {
			t.Fatalf("a piece after the ending: %+v", piece)
		}
		if o.tokens, o.text, o.ending = append(o.tokens, piece.Tokens...), o.text+piece.Text, piece.Ending; o.ending != nil {
			open--
		}
		if piece.Final != (open == 0) {
			t.Fatalf("%d samples open, final: %v", open, piece.Final)
		}
	}
	if open != 0 {
		t.Fatalf("%d samples without an ending", open)
	}
	return outputs
}

// paired is a device on which batch 5 completes only after batch 6 was submitted.
type paired struct {
	engine.Backend
	second, closed chan struct{}
}

func (p *paired) Submit(b *engine.Batch) (engine.Ticket, error) {
	ticket, err := p.Backend.Submit(b)
	if b.Seq == 6 {
		close(p.second)
	}
	if b.Seq == 5 {
		ticket = firstOfPair{ticket, p}
	}
	return ticket, err
}

func (p *paired) Close() error {
	close(p.closed)
	return p.Backend.Close()
}

type firstOfPair struct {
	engine.Ticket
	p *paired
}

func (f firstOfPair) Result() (*engine.Result, error) {
	select {
	case <-f.p.second:
	case <-f.p.closed:
	}
	return f.Ticket.Result()
}

// A step is submitted while the previous one runs.
func TestOverlap(t *testing.T) {
	b := &paired{backend(t, cpu.Config{KVTokens: 1024}), make(chan struct{}), make(chan struct{})}
	s := start(t, Config{Backend: b, Scheduler: scheduler.Config{MaxInflight: 2}}, cpu.Config{})
	if _, _, e := drain(t, open(t, s, Request{Prompt: prompt, MaxTokens: 20, IgnoreEOS: true})); e.OutputTokens != 20 {
		t.Errorf("ending %+v", e)
	}
}

// With overlap, the next step is already in flight when a stop token is seen: its token for
// that request is dropped.
func TestLateStopGivesNoExtraToken(t *testing.T) {
	// A row with drafts has no successor in flight.
	s := start(t, Config{Scheduler: scheduler.Config{MaxInflight: 2, Speculate: scheduler.SpeculateOff}}, cpu.Config{})
	tokens, _, _ := drain(t, open(t, s, Request{Prompt: prompt, MaxTokens: 12, IgnoreEOS: true}))
	before, err := s.Stats(patience(t))
	if err != nil {
		t.Fatal(err)
	}
	at := slices.Index(tokens, tokens[5])
	got, _, e := drain(t, open(t, s, Request{Prompt: prompt, MaxTokens: 12, IgnoreEOS: true, StopTokens: tokens[5:6]}))
	if e.Reason != scheduler.Stop || !slices.Equal(got, tokens[:at+1]) || e.OutputTokens != at+1 {
		t.Errorf("tokens %v, ending %+v, want %v", got, e, tokens[:at+1])
	}
	// Wait for the late row, which completes after the ending was delivered.
	for ctx := patience(t); ; {
		st, err := s.Stats(ctx)
		if err != nil {
			t.Fatalf("%v, void tokens %d", err, st.Scheduler.VoidTokens)
		}
		if st.Scheduler.VoidTokens == before.Scheduler.VoidTokens+1 {
			break
		}
	}
	conserve(t, s)
}

// TestOverlapChangesNoToken: with two plans in flight every request gets the same tokens and
// logit bits as with one, even if pages are scarce.
func TestOverlapChangesNoToken(t *testing.T) {
	for _, pool := range []cpu.Config{{KVTokens: 4096, PageTokens: 16}, {KVTokens: 320, PageTokens: 4}} {
		var want []output
		for inflight := 1; inflight <= 2; inflight++ {
			s := start(t, Config{Scheduler: scheduler.Config{MaxInflight: inflight, StepTokens: 48, MaxRunning: 6}}, pool)
			var got []output
			var streams []*Stream
			for i := range 12 {
				streams = append(streams, open(t, s, Request{
					Prompt: prompt[:20+i%3*15] + strings.Repeat("a", i), MaxTokens: 5 + i*3, IgnoreEOS: i%2 == 0, Digest: true,
					Sampling: engine.SamplingParams{Temperature: float32(i%3) * 0.6, Seed: uint64(i)},
				}))
			}
			for _, stream := range streams {
				got = append(got, drainAll(t, stream, 1)...)
			}
			conserve(t, s)
			if inflight == 1 {
				want = got
				continue
			}
			for i := range got {
				if w, g := want[i], got[i]; !slices.Equal(w.tokens, g.tokens) || w.text != g.text ||
					w.ending.LogitDigest != g.ending.LogitDigest || g.ending.LogitDigest == 0 || w.ending.Reason != g.ending.Reason {
					t.Errorf("request %d: %v %v %x, without overlap %v %v %x", i,
						g.tokens, g.ending.Reason, g.ending.LogitDigest, w.tokens, w.ending.Reason, w.ending.LogitDigest)
				}
			}
		}
	}
}
