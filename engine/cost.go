package engine

import "math"

// StepCost estimates the duration of a step from its rows, new tokens and context. It
// is a plain value that a scheduler corrects by measured steps; zero where nothing is
// known. All figures are seconds. Example: Step 6 ms and Token 20 µs make a step of 500
// prompt tokens 16 ms.
type StepCost struct {
	Step    float64 // per step: launches, and reading the weights once
	Row     float64 // per row
	Token   float64 // per token of a prompt
	Pair    float64 // per token of context that a prompt token attends to
	Context float64 // per token of context of a decode row
	Host    float64 // of this machine before a step; the device waits for it unless another step is in flight
}

// StepShape has the figures of a step that determine its cost.
type StepShape struct {
	Rows         int
	PromptTokens int   // tokens of rows with several tokens
	PromptPairs  int64 // tokens that these attend to, in sum
	Context      int64 // tokens that rows of one token attend to, in sum
}

// Add counts a row that runs n tokens from position start on. Token i of them attends
// to start+i+1 tokens, so the row adds n·start + n(n+1)/2 pairs: 3 tokens at position
// 10 add 11+12+13 = 36.
func (s *StepShape) Add(start, n int) {
	s.Rows++
	if n == 1 {
		s.Context += int64(start) + 1
		return
	}
	s.PromptTokens += n
	s.PromptPairs += int64(n)*int64(start) + int64(n)*int64(n+1)/2
}

// Fixed returns the part of a step's seconds that does not depend on its prompts.
func (c *StepCost) Fixed(s *StepShape) float64 {
	return c.Step + float64(c.Row*float64(s.Rows)) + float64(c.Context*float64(s.Context))
}

// Prompts returns the part of a step's seconds that its prompts add.
func (c *StepCost) Prompts(s *StepShape) float64 {
	return float64(c.Token*float64(s.PromptTokens)) + float64(c.Pair*float64(s.PromptPairs))
}

// Known reports whether c has a cost of prompt tokens.
func (c *StepCost) Known() bool { return c.Token > 0 }

// BalanceTokens returns the context length at which attention costs a prompt token as
// much as everything else: a token after c others costs 1 + c/BalanceTokens times the
// first token's cost. 0: unknown.
func (c *StepCost) BalanceTokens() int {
	if c.Token <= 0 || c.Pair <= 0 {
		return 0
	}
	return max(1, int(math.Round(c.Token/c.Pair)))
}
