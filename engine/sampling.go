package engine

import (
	"errors"
	"fmt"
	"math"

	"github.com/coppice-llm/coppice/internal/splitmix"
	"github.com/coppice-llm/coppice/kv"
)

// SamplingParams determine how a token is drawn from logits. The zero value is greedy.
//
// Order, all in f32: raw logits (logprobs and digests are taken here), bias,
// repetition, presence and frequency penalties, mask. Temperature 0 then takes the best
// token, the lowest id on ties; so does a temperature so low that the best logit
// divided by it exceeds f32. Otherwise: divide by Temperature, min-p, top-k, top-p,
// draw. The draw depends only on Seed, SampleIndex and the token id, so the same seed
// gives the same tokens whatever else runs.
type SamplingParams struct {
	Temperature       float32 // 0 is greedy
	TopK              int32   // 0 is off
	TopP              float32 // 0 or 1 is off
	MinP              float32 // 0 is off
	RepetitionPenalty float32 // 0 or 1 is off; counts prompt and output
	PresencePenalty   float32 // [-2, 2], counts output
	FrequencyPenalty  float32 // [-2, 2], counts output
	TopLogprobs       int32   // number of RowOut.Top entries, 0 for none
	Logprobs          bool    // asks for RowOut.Logprob
	Seed              uint64
	Bias              []TokenBias // each token at most once
}

// TokenBias is added to one token's logit; -Inf forbids it.
type TokenBias struct {
	Token kv.Token
	Bias  float32
}

// BranchSeed returns the seed of sample b, counted from 0, of a request with several outputs. seed
// is the request's. Sample 0 uses it unchanged, so its tokens equal those of a request for one
// output.
func BranchSeed(seed uint64, b int) uint64 {
	if b == 0 {
		return seed
	}
	return splitmix.Mix(seed + uint64(b)*splitmix.Golden)
}

// MaxTopLogprobs is the largest SamplingParams.TopLogprobs and Row.PromptTop.
const MaxTopLogprobs = 20

// Penalised reports whether p has a penalty, so that a slot must count its tokens.
func (p *SamplingParams) Penalised() bool {
	return (p.RepetitionPenalty != 0 && p.RepetitionPenalty != 1) || p.PresencePenalty != 0 || p.FrequencyPenalty != 0
}

// Validate returns an error that names each invalid parameter with its value, or nil. vocab is the
// size of the vocabulary, which bounds the tokens of Bias.
func (p *SamplingParams) Validate(vocab int) error {
	var errs []error
	bad := func(field string, value any, want string) {
		errs = append(errs, fmt.Errorf("sampling: %s is %v, want %s", field, value, want))
	}
	// The negated form refuses NaN as well.
	within := func(field string, v, lo, hi float32, want string) {
		if !(v >= lo && v <= hi) {
			bad(field, v, want)
		}
	}
	within("Temperature", p.Temperature, 0, math.MaxFloat32, "a finite number, 0 (greedy) or more")
	within("TopP", p.TopP, 0, 1, "a number from 0 (off) to 1")
	within("MinP", p.MinP, 0, 1, "a number from 0 (off) to 1")
	within("RepetitionPenalty", p.RepetitionPenalty, 0, math.MaxFloat32, "a finite number, 0 (off) or more")
	within("PresencePenalty", p.PresencePenalty, -2, 2, "a number from -2 to 2")
	within("FrequencyPenalty", p.FrequencyPenalty, -2, 2, "a number from -2 to 2")
	if p.TopK < 0 {
		bad("TopK", p.TopK, "0 (off) or more")
	}
	if p.TopLogprobs < 0 || p.TopLogprobs > MaxTopLogprobs {
		bad("TopLogprobs", p.TopLogprobs, fmt.Sprintf("0 to %d", MaxTopLogprobs))
	}
	for i, b := range p.Bias {
		if uint64(b.Token) >= uint64(vocab) {
			bad(fmt.Sprintf("Bias[%d].Token", i), b.Token, fmt.Sprintf("a token below %d", vocab))
		}
		if math.IsNaN(float64(b.Bias)) || math.IsInf(float64(b.Bias), 1) {
			bad(fmt.Sprintf("Bias[%d].Bias", i), b.Bias, "a number or -Inf")
		}
	}
	return errors.Join(errs...)
}
