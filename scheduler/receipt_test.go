package scheduler

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/engine/enginetest"
	simulated "github.com/coppice-llm/coppice/engine/sim"
	"github.com/coppice-llm/coppice/kv"
)

// newLogitsBed returns a bed whose device has logits, so that a request can ask for
// everything.
func newLogitsBed(t *testing.T, cfg Config, pages int) *bed {
	t.Helper()
	b := newBed(t, cfg, 4, pages)
	clock := simulated.NewClock()
	backend, err := simulated.Open(simulated.Config{PageTokens: 4, Pages: pages, MaxSlots: 8, MaxRows: 8, MaxTokens: 512, MaxPositions: 200,
		Vocab: 97, Sanitize: simulated.Full, Clock: clock, Logits: true})
	if err != nil {
		t.Fatal(err)
	}
	b.sim.Backend, b.sim.info, b.sim.clock = backend, backend.Info(), clock
	b.s.info = backend.Info()
	return b
}

// asksAll returns a request whose rows ask for everything that a backend can answer
// wrongly with that fault.
func asksAll(id RequestID, prompt []kv.Token, fault enginetest.Fault) Request {
	if fault.Needs == enginetest.NeedsHidden {
		return Request{ID: id, Prompt: prompt, Pooling: MeanTokens}
	}
	return Request{ID: id, Prompt: prompt, MaxTokens: 4, PromptLogprobs: true, PromptTop: 3, AllowedTokens: seq(0, 50),
		Sampling: engine.SamplingParams{Temperature: 1, Seed: uint64(id), Logprobs: true, TopLogprobs: 3}}
}

// faultyRun serves a victim and a bystander, with a fault in the nth answer for the
// victim that can show it, and returns their tokens and endings.
func faultyRun(b *bed, fault enginetest.Fault, nth int) (tokens map[RequestID][]kv.Token, endings map[RequestID][]Ending, steps int) {
	b.t.Helper()
	tokens, endings = map[RequestID][]kv.Token{}, map[RequestID][]Ending{}
	for _, req := range []Request{asksAll(1, seq(0, 30), fault), asksAll(2, seq(40, 30), enginetest.Fault{})} {
		if err := b.s.Add(b.now, req); err != nil {
			b.t.Fatal(err)
		}
	}
	var plan *Plan
	device := fault.Plant(b.sim.Backend, func(x *engine.Batch) (int, bool) {
		for i := range x.Rows {
			id, _ := plan.Request(i)
			if q := plan.rows[i].q; id == 1 && fault.Fits(&x.Rows[i], &q.req.Sampling) {
				if nth--; nth == 0 {
					return i, true
				}
			}
		}
		return 0, false
	})
	for ; b.s.Open() > 0 && steps < 100; steps++ {
		plan = b.s.Next(b.now)
		ticket, err := device.Submit(&plan.Batch)
		if err != nil {
			b.t.Fatal(err)
		}
		for b.sim.clock.Step() {
		}
		res, err := ticket.Result()
		if err != nil {
			b.t.Fatal(err)
		}
		for _, o := range b.s.Complete(b.now, plan, res, nil) {
			if o.Sampled {
				tokens[o.Request] = append(tokens[o.Request], o.Token)
			}
			if o.Ending.Reason != NotEnded {
				endings[o.Request] = append(endings[o.Request], o.Ending)
			}
		}
		if err := b.s.Check(); err != nil {
			b.t.Fatal(err)
		}
	}
	return tokens, endings, steps
}

// TestFaultyAnswersFailOneRequest checks that a breach of the backend's contract in one
// row fails that row's request, once, with an error that names it. The request beside it
// gets its tokens in as many steps as without the fault, and a later request is served.
func TestFaultyAnswersFailOneRequest(t *testing.T) {
	for _, fault := range enginetest.Faults() {
		if fault.Whole {
			continue
		}
		for nth := 1; nth <= 2; nth++ {
			t.Run(fmt.Sprintf("%s/%d", fault.Name, nth), func(t *testing.T) {
				b := newLogitsBed(t, Config{StepTokens: 24}, 100)
				tokens, endings, steps := faultyRun(b, fault, nth)
				e := endings[1]
				if len(e) != 1 || e[0].Reason != Failed {
					t.Fatalf("the request with the faulty answer ends with %+v", e)
				}
				if given := strings.HasPrefix(fault.Name, "fails a row"); errors.Is(e[0].Err, ErrContract) == given || given && len(tokens[1]) >= 4 {
					t.Errorf("it ends with %v", e[0].Err)
				}
				beside := asksAll(2, seq(40, 30), enginetest.Fault{})
				want := b.sim.Expect(beside.Prompt, beside.Sampling, 4, func([]kv.Token) []uint64 { return newAllowed(&b.s.info, &beside).always.Bits })
				if e := endings[2]; len(e) != 1 || e[0].Reason != Length || !slices.Equal(tokens[2], want) {
					t.Errorf("the other request got %v, want %v, and ends with %+v", tokens[2], want, e)
				}
				if steps > 8 {
					t.Errorf("%d steps for two requests", steps)
				}
				b.add(3, seq(0, 30), 2)
				if e := b.run()[3]; e.Reason != Length {
					t.Errorf("a later request ends with %+v", e)
				}
			})
		}
	}
}

// TestFaultyResultsPanic checks that a result that can't be attributed to rows panics; the
// actor's supervisor then ends the node.
func TestFaultyResultsPanic(t *testing.T) {
	for _, fault := range enginetest.Faults() {
		if !fault.Whole {
			continue
		}
		t.Run(fault.Name, func(t *testing.T) {
			b := newLogitsBed(t, Config{StepTokens: 24}, 100)
			defer func() {
				if v, _ := recover().(string); !strings.HasPrefix(v, "scheduler: ") {
					t.Errorf("panics with %q", v)
				}
			}()
			faultyRun(b, fault, 1)
			t.Error("the result was taken")
		})
	}
}

// TestCapabilitiesAreChecked checks that requests for what the backend's Info does not list
// are refused.
func TestCapabilitiesAreChecked(t *testing.T) {
	for _, c := range []struct {
		field, says string
		ask         func(r *Request)
		can         func(c *engine.Capabilities) *bool
	}{
		{"Logprobs", "log-probabilities", func(r *Request) { r.Sampling.Logprobs = true }, func(c *engine.Capabilities) *bool { return &c.Logprobs }},
		{"Logprobs", "log-probabilities", func(r *Request) { r.Sampling.TopLogprobs = 1 }, func(c *engine.Capabilities) *bool { return &c.Logprobs }},
		{"PromptLogprobs", "prompts", func(r *Request) { r.PromptLogprobs = true }, func(c *engine.Capabilities) *bool { return &c.PromptLogprobs }},
		{"Penalties", "penalties", func(r *Request) { r.Sampling.FrequencyPenalty = 1 }, func(c *engine.Capabilities) *bool { return &c.Penalties }},
		{"Digest", "digests", func(r *Request) { r.Digest = true }, func(c *engine.Capabilities) *bool { return &c.Digests }},
	} {
		b := newLogitsBed(t, Config{}, 100)
		req := Request{ID: 1, Prompt: seq(0, 5), MaxTokens: 1}
		c.ask(&req)
		*c.can(&b.s.info.Capabilities) = false
		var field *FieldError
		if err := b.s.Add(0, req); !errors.Is(err, ErrInvalid) || !errors.As(err, &field) || field.Field != c.field || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", c.field, err)
		}
		*c.can(&b.s.info.Capabilities) = true
		if err := b.s.Add(0, req); err != nil {
			t.Errorf("%s, which the backend gives: %v", c.field, err)
		}
	}
}

// TestFaultyAnswersToDrafts checks that each wrong answer about drafts fails the request with ErrContract,
// and that a right one gives each confirmed draft its own log-probability and digest.
func TestFaultyAnswersToDrafts(t *testing.T) {
	for name, spoil := range map[string]func(o *engine.RowOut, r *engine.Row){
		"none":          nil,
		"too many":      func(o *engine.RowOut, r *engine.Row) { o.Confirmed = int32(len(r.Drafts)) + 1 },
		"negative":      func(o *engine.RowOut, _ *engine.Row) { o.Confirmed = -1 },
		"not described": func(o *engine.RowOut, _ *engine.Row) { o.Drafts = o.Drafts[:len(o.Drafts)-1] },
		"one less": func(o *engine.RowOut, r *engine.Row) {
			o.Confirmed--
			o.Drafts = o.Drafts[1:]
			o.Token = r.Drafts[o.Confirmed]
		},
		"positive logprob":  func(o *engine.RowOut, _ *engine.Row) { o.Drafts[1].Logprob = 1 },
		"one probable less": func(o *engine.RowOut, _ *engine.Row) { o.Drafts[0].Top = o.Drafts[0].Top[1:] },
		"of no drafts":      func(o *engine.RowOut, r *engine.Row) { r.Drafts, o.Confirmed = nil, 1 },
	} {
		b := newSeer(t, Config{Speculate: 4}, engine.StepCost{})
		text := upFrom(100, 20)
		b.want[1] = text[4:16]
		if err := b.s.Add(0, Request{ID: 1, Prompt: append(slices.Clone(text), text[:4]...), MaxTokens: 12, Digest: true, Sampling: engine.SamplingParams{Logprobs: true, TopLogprobs: 2}}); err != nil {
			t.Fatal(err)
		}
		var ending Ending
		for n := 0; b.s.Open() > 0; {
			p := b.s.Next(b.now)
			res := b.answer(p)
			o, r := &res.Out[0], &p.Batch.Rows[0]
			for i := range o.Confirmed + 1 {
				o.Logprob, o.Digest, o.Top = -float32(r.SampleIndex+i), uint64(r.SampleIndex+i), make([]engine.TokenLogprob, 2)
				if i < o.Confirmed {
					o.Drafts = append(o.Drafts, engine.DraftOut{Logprob: o.Logprob, Digest: o.Digest, Top: o.Top})
				}
			}
			if o.Confirmed > 1 && spoil != nil {
				spoil(o, r)
			}
			for _, out := range b.s.Complete(b.now, p, res, nil) {
				if out.Sampled {
					if out.Digest != uint64(n) || out.Logprob != -float32(n) || out.Token != b.want[1][n] {
						t.Errorf("%s: token %d of the output is %d, with digest %d and %v", name, n, out.Token, out.Digest, out.Logprob)
					}
					n++
				}
				ending = out.Ending
			}
		}
		if spoil == nil && ending.Reason != Length || spoil != nil && (ending.Reason != Failed || !errors.Is(ending.Err, ErrContract)) {
			t.Errorf("%s: the request ends by %v with %v", name, ending.Reason, ending.Err)
		}
	}
}
