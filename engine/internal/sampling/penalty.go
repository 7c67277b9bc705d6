package sampling

import (
	"math"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/kv"
)

// inPrompt marks a token of the prompt; the other bits count its occurrences in the output.
const inPrompt = 1 << 31

// counts holds the token counts for a slot's penalties. The array is dense, for updates in O(1).
// The list of touched tokens makes reset and apply linear in the distinct tokens of the sequence
// instead of the vocabulary.
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

// rebuild counts the tokens of a sequence after reset. It ignores tokens beyond the vocabulary.
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

// apply applies the penalties to work in place. First repetition, for tokens of prompt and output:
// a positive logit is divided, a negative one multiplied. Then presence and frequency, for tokens
// of the output. Tokens are independent of each other, so the order of touched does not matter.
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
