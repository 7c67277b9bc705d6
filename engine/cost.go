package engine

import "math"

// StepCost says how long a step takes, by its rows, new tokens and context. It is a plain
// value, an estimate that a scheduler corrects by what it measures; zero where nothing is
// known. All figures are seconds.
type StepCost struct {
	Step    float64 // of any step: launches, and reading the weights once
	Row     float64 // more for each row
	Token   float64 // more for each token of a prompt, behind none
	Pair    float64 // more for each token of context that a token of a prompt attends to
	Context float64 // more for each token of context of a decode row
	Host    float64 // of this machine before a step, while the device waits unless another one is in flight
}

// StepShape is what of a step its cost goes by.
type StepShape struct {
	Rows         int
	PromptTokens int   // tokens of rows that run several
	PromptPairs  int64 // tokens that these attend to, summed up
	Context      int64 // tokens that the rows of one token attend to, summed up
}

// Add counts a row that runs n tokens from position start on.
func (s *StepShape) Add(start, n int) {
	s.Rows++
	if n == 1 {
		s.Context += int64(start) + 1
		return
	}
	s.PromptTokens += n
	s.PromptPairs += int64(n)*int64(start) + int64(n)*int64(n+1)/2
}

// Fixed is the part of a step's seconds that its prompts have nothing to do with.
func (c *StepCost) Fixed(s *StepShape) float64 {
	return c.Step + float64(c.Row*float64(s.Rows)) + float64(c.Context*float64(s.Context))
}

// Prompts is the rest.
func (c *StepCost) Prompts(s *StepShape) float64 {
	return float64(c.Token*float64(s.PromptTokens)) + float64(c.Pair*float64(s.PromptPairs))
}

// Known reports whether c says how long prompts take.
func (c *StepCost) Known() bool { return c.Token > 0 }

// BalanceTokens is the context at which attending to it costs a token of a prompt as much
// as all else, so that a token behind c others costs 1 + c/BalanceTokens of one behind
// none. 0 where it is not known.
func (c *StepCost) BalanceTokens() int {
	if c.Token <= 0 || c.Pair <= 0 {
		return 0
	}
	return max(1, int(math.Round(c.Token/c.Pair)))
}
