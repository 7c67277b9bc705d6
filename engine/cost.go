package engine

import "math"

// StepCost holds the figures that estimate the duration of a step: the cost of the step itself, of
// each row, of each new token and of each token of context. A backend reports its estimate in
// Info.Cost. A figure of zero is unknown. All figures are seconds. Example: Step 6 ms and Token 20
// µs make a step of 500 prompt tokens 16 ms.
type StepCost struct {
	Step    float64 // per step: kernel launches, and reading the weights once
	Row     float64 // per row
	Token   float64 // per token of a prompt
	Pair    float64 // per token of context that a prompt token attends to
	Context float64 // per token of context of a decode row
	Draft   float64 // per draft of a row: one position more that runs and is sampled, without its context
	Host    float64 // per step: work of this machine before the device begins; the device waits for it unless another step is in flight
}

// StepShape holds what determines the cost of a step: its rows, new tokens and context.
type StepShape struct {
	Rows         int
	PromptTokens int   // tokens of rows with several tokens
	PromptPairs  int64 // sum over the PromptTokens of the tokens that each of them attends to
	Context      int64 // sum over the rows of one token of the tokens that each row attends to
	Drafts       int   // drafts of rows
	DraftPairs   int64 // sum over the Drafts of the tokens that each of them attends to
}

// Add counts a row of n tokens, the first at position start. Token i of the row, from 0, attends
// to start+i+1 tokens. A row of one token adds start+1 to Context. A row of several tokens adds n
// to PromptTokens and n·start + n(n+1)/2 to PromptPairs: 3 tokens at position 10 add 11+12+13 =
// 36.
func (s *StepShape) Add(start, n int) {
	s.Rows++
	if n == 1 {
		s.Context += int64(start) + 1
		return
	}
	s.PromptTokens += n
	s.PromptPairs += int64(n)*int64(start) + int64(n)*int64(n+1)/2
}

// AddDrafts counts the n drafts of a row, the first at position start, where the row's own tokens
// end; Add counts the row without them. Draft i, from 0, attends to start+i+1 tokens. So a decode row
// at position 10 with 3 drafts is Add(10, 1) and AddDrafts(11, 3), which adds 12+13+14 = 39 to
// DraftPairs.
func (s *StepShape) AddDrafts(start, n int) {
	s.Drafts += n
	s.DraftPairs += int64(n)*int64(start) + int64(n)*int64(n+1)/2
}

// Fixed returns the seconds of a step of shape s that do not depend on its prompt tokens.
func (c *StepCost) Fixed(s *StepShape) float64 {
	return c.Step + float64(c.Row*float64(s.Rows)) + float64(c.Context*float64(s.Context)) + c.drafts(s)
}

// drafts returns the seconds that the drafts add to a step of shape s. A draft attends to KV that its
// row reads anyway, so a token of its context costs what it costs a prompt token.
func (c *StepCost) drafts(s *StepShape) float64 {
	return float64(c.Draft*float64(s.Drafts)) + float64(c.Pair*float64(s.DraftPairs))
}

// Prompts returns the seconds that the prompt tokens add to a step of shape s.
func (c *StepCost) Prompts(s *StepShape) float64 {
	return float64(c.Token*float64(s.PromptTokens)) + float64(c.Pair*float64(s.PromptPairs))
}

// Known reports whether c has a cost of prompt tokens.
func (c *StepCost) Known() bool { return c.Token > 0 }

// BalanceTokens returns the context length, in tokens, at which attention costs a prompt token as
// much as everything else: a token after c others costs 1 + c/BalanceTokens times the first
// token's cost. It returns 0 if Token or Pair is unknown.
func (c *StepCost) BalanceTokens() int {
	if c.Token <= 0 || c.Pair <= 0 {
		return 0
	}
	return max(1, int(math.Round(c.Token/c.Pair)))
}
