package coppice_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/coppice-llm/coppice"
	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/kv"
)

func length(v []float32) float64 {
	sum := 0.0
	for _, x := range v {
		sum += float64(x) * float64(x)
	}
	return math.Sqrt(sum)
}

// An embedding has the same bits cached or not, for both poolings; its length is 1, cut or not; and the
// bill counts the computed tokens.
func TestEmbed(t *testing.T) {
	node := open(t, coppice.Config{})
	const text = "Light is a wave, and light is a particle."
	embed := func(r coppice.EmbedRequest) coppice.Embedding {
		t.Helper()
		e, err := node.Embed(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	size := node.Info().HiddenSize
	first := embed(coppice.EmbedRequest{Prompt: text})
	if len(first.Vector) != size || math.Abs(length(first.Vector)-1) > 1e-6 || first.Reason != coppice.Stop || first.OutputTokens != 0 || first.PromptTokens != len(first.Tokens) {
		t.Errorf("%d values of length %v, %+v", len(first.Vector), length(first.Vector), first.Ending)
	}
	again := embed(coppice.EmbedRequest{Tokens: first.Tokens, Pooling: coppice.LastToken})
	if again.ComputedTokens != 1 || !slices.Equal(again.Vector, first.Vector) {
		t.Errorf("%d tokens are computed again, and the vectors are equal: %v", again.ComputedTokens, slices.Equal(again.Vector, first.Vector))
	}
	mean := embed(coppice.EmbedRequest{Prompt: text, Pooling: coppice.MeanTokens})
	fresh := embed(coppice.EmbedRequest{Prompt: text, Pooling: coppice.MeanTokens, Namespace: kv.Namespace{Salt: "another"}})
	if mean.CachedTokens != 0 || mean.ComputedTokens != mean.PromptTokens || !slices.Equal(mean.Vector, fresh.Vector) || slices.Equal(mean.Vector, first.Vector) {
		t.Errorf("the mean: %+v", mean.Ending)
	}
	raw := embed(coppice.EmbedRequest{Prompt: text, Raw: true, Dimensions: 8})
	cut := embed(coppice.EmbedRequest{Prompt: text, Dimensions: 8})
	if len(cut.Vector) != 8 || math.Abs(length(cut.Vector)-1) > 1e-6 || len(raw.Vector) != 8 || math.Abs(length(raw.Vector)-1) < 1e-3 {
		t.Errorf("cut to 8 values of length %v, raw of length %v", length(cut.Vector), length(raw.Vector))
	}
	for i := range cut.Vector {
		if math.Abs(float64(raw.Vector[i])/length(raw.Vector)-float64(cut.Vector[i])) > 1e-6 {
			t.Errorf("value %d is %v, raw %v", i, cut.Vector[i], raw.Vector[i])
		}
	}
	if r, err := node.Text(t.Context(), coppice.Request{Prompt: text + " And", MaxTokens: 2}); err != nil || r.CachedTokens < first.PromptTokens/2 {
		t.Errorf("a prompt after the embedding finds %d tokens, %v", r.CachedTokens, err)
	}
	for _, bad := range []coppice.EmbedRequest{{}, {Prompt: text, Dimensions: size + 1}, {Prompt: text, Dimensions: -1}, {Prompt: text, Pooling: 9}} {
		if _, err := node.Embed(t.Context(), bad); !errors.Is(err, coppice.ErrInvalid) && !errors.Is(err, coppice.ErrEmptyPrompt) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := node.Embed(ctx, coppice.EmbedRequest{Prompt: text}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// Config.Pooling decides for requests that name no pooling.
func TestEmbedByConfig(t *testing.T) {
	node := open(t, coppice.Config{Pooling: coppice.MeanTokens})
	e, err := node.Embed(t.Context(), coppice.EmbedRequest{Prompt: "Light"})
	if err != nil {
		t.Fatal(err)
	}
	mean, err := node.Embed(t.Context(), coppice.EmbedRequest{Prompt: "Light", Pooling: coppice.MeanTokens})
	if err != nil || node.Pooling() != coppice.MeanTokens || !slices.Equal(e.Vector, mean.Vector) {
		t.Errorf("%v, %v", node.Pooling(), err)
	}
}

// A backend without hidden states refuses embeddings and says why.
func TestEmbedIsRefused(t *testing.T) {
	node, err := coppice.Open(coppice.Config{Backend: &counter{last: map[engine.Slot]kv.Token{}}})
	if err != nil {
		t.Fatal(err)
	}
	defer node.Close()
	if _, err := node.Embed(t.Context(), coppice.EmbedRequest{Tokens: []kv.Token{1}}); !errors.Is(err, coppice.ErrInvalid) {
		t.Errorf("%v", err)
	}
}
