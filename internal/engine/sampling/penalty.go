package sampling

import (
	"math"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/kv"
)

// inPrompt marks a token of the prompt; the other bits count outputs.
const inPrompt = 1 << 31

// counts are the tokens that a slot's penalties see: dense for O(1) updates, with
// a list of what was touched, so that reset and apply cost the distinct tokens of
// the sequence and not the vocabulary.
type counts struct {
	dense   []uint32
	touched []kv.Token // tokens with dense != 0, in the order of first touch
}

func (c *counts) reset() {
	for _, t := range c.touched {
		c.dense[t] = 0
	}
	c.touched = c.touched[:0]
}

func (c *counts) rebuild(vocab int, prompt, output []kv.Token) {
	if c.dense == nil {
		c.dense = make([]uint32, vocab)
		c.touched = make([]kv.Token, 0, vocab)
	}
	for _, t := range prompt {
		if uint64(t) < uint64(vocab) {
			c.touch(t)
			c.dense[t] |= inPrompt
		}
	}
	for _, t := range output {
		if uint64(t) < uint64(vocab) {
			c.add(t)
		}
	}
}

func (c *counts) touch(t kv.Token) {
	if c.dense[t] == 0 {
		c.touched = append(c.touched, t)
	}
}

func (c *counts) add(t kv.Token) {
	c.touch(t)
	c.dense[t]++
}

// apply changes work in place: repetition first (a positive logit is divided, a
// negative one multiplied; prompt and output count), then presence and frequency
// (output only). Each token is changed alone, so the order of touched is free.
func (c *counts) apply(work []float32, p *engine.SamplingParams) {
	repeat := p.RepetitionPenalty != 0 && p.RepetitionPenalty != 1
	for _, t := range c.touched {
		l := work[t]
		if math.IsInf(float64(l), -1) {
			continue
		}
		if repeat {
			if l > 0 {
				l = float32(l / p.RepetitionPenalty)
			} else {
				l = float32(l * p.RepetitionPenalty)
			}
		}
		if n := c.dense[t] &^ inPrompt; n > 0 {
			l -= p.PresencePenalty
			l -= float32(p.FrequencyPenalty * float32(n))
		}
		work[t] = max(clamp(l), -math.MaxFloat32)
	}
}
