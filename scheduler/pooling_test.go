package scheduler

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/grammar"
	"github.com/coppice-llm/coppice/kv"
)

// embed adds a request for an embedding.
func (b *bed) embed(id RequestID, prompt []kv.Token, p Pooling) {
	b.t.Helper()
	if err := b.s.Add(b.now, Request{ID: id, Prompt: prompt, Pooling: p}); err != nil {
		b.t.Fatal(err)
	}
}

// wantEmbedding returns the embedding that a request must get.
func (b *bed) wantEmbedding(prompt []kv.Token, p Pooling) []float32 {
	if p == LastToken {
		return b.sim.ExpectHidden(prompt, engine.HiddenLast)
	}
	mean := b.sim.ExpectHidden(prompt, engine.HiddenSum)
	for i := range mean {
		mean[i] /= float32(len(prompt))
	}
	return mean
}

// ended runs steps until a request ends and returns its output.
func (b *bed) ended(id RequestID) Output {
	b.t.Helper()
	for range 100 {
		for _, o := range b.step() {
			if o.Request == id && o.Ending.Reason != NotEnded {
				return o
			}
		}
	}
	b.t.Fatalf("request %d has no ending", id)
	return Output{}
}

// TestEmbeddings checks that a request for an embedding computes its prompt in chunks, ends once with the
// embedding and no token, leaves its KV to others, and takes as much from the cache as its pooling allows.
func TestEmbeddings(t *testing.T) {
	for _, p := range []Pooling{LastToken, MeanTokens} {
		t.Run(p.String(), func(t *testing.T) {
			b := newBed(t, Config{StepTokens: 8, ShareTokens: 1000}, 4, 40)
			prompt := seq(0, 22)
			b.embed(1, prompt, p)
			b.wantRows("1[0,8)")
			b.wantRows("1[8,16)")
			out := b.wantRows("1[16,22)")
			if len(out) != 1 || out[0].Sampled || !out[0].Final || out[0].Ending.Reason != Stop || !slices.Equal(out[0].Embedding, b.wantEmbedding(prompt, p)) {
				t.Fatalf("the prompt's end gives %+v", out)
			}
			if e := out[0].Ending; e.PromptTokens != 22 || e.ComputedTokens != 22 || e.OutputTokens != 0 {
				t.Errorf("the bill is %+v", e)
			}
			longer := append(slices.Clone(prompt), 90, 91, 92)
			b.add(2, longer, 1)
			if e := b.ended(2).Ending; e.CachedTokens != 22 {
				t.Errorf("a longer prompt finds %d tokens of the embedding's 22", e.CachedTokens)
			}
			b.embed(3, longer, p)
			o := b.ended(3)
			want := map[Pooling]int{LastToken: 24, MeanTokens: 0}[p]
			if o.Ending.CachedTokens != want || !slices.Equal(o.Embedding, b.wantEmbedding(longer, p)) {
				t.Errorf("the embedding of a cached prompt takes %d tokens from the cache, want %d, and gives %v", o.Ending.CachedTokens, want, o.Embedding)
			}
			if b.s.Open() != 0 || b.step() != nil {
				t.Error("a step runs after the last ending")
			}
		})
	}
}

// TestEmbeddingsOverlap checks embeddings beside outputs with two plans in flight: no row of an embedding
// follows its last one.
func TestEmbeddingsOverlap(t *testing.T) {
	b := newBed(t, Config{StepTokens: 16, MaxInflight: 2}, 4, 60)
	b.add(1, seq(0, 10), 8)
	b.embed(2, seq(40, 30), LastToken)
	b.embed(3, seq(60, 30), MeanTokens)
	got := map[RequestID][]Output{}
	var plans []*Plan
	for range 40 {
		for p := b.s.Next(b.now); p != nil; p = b.s.Next(b.now) {
			plans = append(plans, p)
		}
		if len(plans) == 0 {
			break
		}
		res, err := b.sim.run(&plans[0].Batch)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range b.s.Complete(b.now, plans[0], res, nil) {
			got[o.Request] = append(got[o.Request], o)
		}
		plans = plans[1:]
	}
	if len(got[1]) != 8 || got[1][7].Ending.Reason != Length {
		t.Errorf("the request beside them gets %d outputs", len(got[1]))
	}
	for id, p := range map[RequestID]Pooling{2: LastToken, 3: MeanTokens} {
		prompt := map[RequestID][]kv.Token{2: seq(40, 30), 3: seq(60, 30)}[id]
		if o := got[id]; len(o) != 1 || o[0].Ending.Reason != Stop || !slices.Equal(o[0].Embedding, b.wantEmbedding(prompt, p)) {
			t.Errorf("request %d gets %+v", id, o)
		}
	}
}

// TestEmbeddingsAreAborted checks that an embedding whose caller left ends once, as aborted.
func TestEmbeddingsAreAborted(t *testing.T) {
	b := newBed(t, Config{StepTokens: 8}, 4, 40)
	b.embed(1, seq(0, 22), MeanTokens)
	p := b.s.Next(b.now)
	if out := b.s.Abort(b.now, 1, nil, nil); len(out) != 0 {
		t.Fatalf("Abort with a row in flight gives %+v", out)
	}
	res, err := b.sim.run(&p.Batch)
	if err != nil {
		t.Fatal(err)
	}
	out := b.s.Complete(b.now, p, res, nil)
	if len(out) != 1 || out[0].Ending.Reason != Abort || !errors.Is(out[0].Ending.Err, ErrAborted) || out[0].Embedding != nil {
		t.Errorf("its ending is %+v", out)
	}
}

// TestEmbeddingsHaveNoOutput checks that fields about an output are refused, by name, and a pooling that a
// backend can't do.
func TestEmbeddingsHaveNoOutput(t *testing.T) {
	stops, err := grammar.NewStops([]string{"x"})
	if err != nil {
		t.Fatal(err)
	}
	for field, ask := range map[string]func(b *bed, r *Request){
		"MaxTokens":      func(_ *bed, r *Request) { r.MaxTokens = 1 },
		"Samples":        func(_ *bed, r *Request) { r.Samples = 2 },
		"AllowedTokens":  func(_ *bed, r *Request) { r.AllowedTokens = seq(0, 3) },
		"Prediction":     func(_ *bed, r *Request) { r.Prediction = seq(0, 3) },
		"PromptLogprobs": func(b *bed, r *Request) { r.PromptLogprobs, b.s.info.Capabilities.PromptLogprobs = true, true },
		"Digest":         func(_ *bed, r *Request) { r.Digest = true },
		"Stops":          func(_ *bed, r *Request) { r.Stops = stops },
		"Pooling":        func(b *bed, _ *Request) { b.s.info.HiddenSize = 0 },
	} {
		b := newBed(t, Config{}, 4, 40)
		req := Request{ID: 1, Prompt: seq(0, 5), Pooling: LastToken}
		ask(b, &req)
		var refused *FieldError
		if err := b.s.Add(0, req); !errors.Is(err, ErrInvalid) || !errors.As(err, &refused) || refused.Field != field && field != "Stops" {
			t.Errorf("%s: %v", field, err)
		}
	}
	b := newBed(t, Config{}, 4, 40)
	if err := b.s.Add(0, Request{ID: 1, Prompt: seq(0, 5), Pooling: 9}); err == nil || !strings.Contains(err.Error(), "last or mean") {
		t.Errorf("a pooling that there is not: %v", err)
	}
}

// TestFailedEmbedding checks that KV of an embedding that failed is not used again.
func TestFailedEmbedding(t *testing.T) {
	b := newBed(t, Config{}, 4, 40)
	b.sim.fail = engine.ErrLogits
	b.embed(1, seq(0, 22), LastToken)
	if o := b.ended(1); o.Ending.Reason != Failed || !errors.Is(o.Ending.Err, engine.ErrLogits) {
		t.Fatalf("it ends with %+v", o.Ending)
	}
	b.sim.fail = nil
	b.embed(2, seq(0, 22), LastToken)
	if o := b.ended(2); o.Ending.CachedTokens != 0 || !slices.Equal(o.Embedding, b.wantEmbedding(seq(0, 22), LastToken)) {
		t.Errorf("after it, %d tokens are cached", o.Ending.CachedTokens)
	}
}
