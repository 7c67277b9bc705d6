package scheduler

import "math"

const (
	// longSteps is how many whole steps a long prompt takes, at least.
	longSteps = 4
	// maxLong bounds the long prompts that are computed at a time: they share one
	// chunk, so more of them would only hold pages.
	maxLong = 2
)

// costOf is what n prompt tokens behind c others take of a step's budget: each
// its own 1, and 1 per AttentionTokens of context. Rounded up.
//
//	cost(n, c) = n + n·(2c+n) / (2·AttentionTokens)
func (c *Config) costOf(n, context int) int {
	k := c.AttentionTokens
	if k < 0 {
		return n
	}
	return n + (n*(2*context+n)+2*k-1)/(2*k)
}

// isLong tells whether the tokens [from, to) of a prompt take longSteps whole steps.
func (c *Config) isLong(from, to int) bool { return c.costOf(to-from, from) > longSteps*c.StepTokens }

// longPrompts counts those that are being computed.
func (s *Scheduler) longPrompts() int {
	n := 0
	for _, q := range s.filling {
		if s.cfg.isLong(q.computed, q.target) {
			n++
		}
	}
	return n
}

// tokensFor is how many tokens behind c others a budget pays, at least 1 if there
// is any: the positive root of n² + 2(k+c)·n − 2k·budget.
func (s *Scheduler) tokensFor(budget, c int) int {
	k := s.cfg.AttentionTokens
	if k < 0 || budget <= 1 {
		return max(budget, 0)
	}
	b := k + c
	n := int(math.Sqrt(float64(b)*float64(b)+2*float64(k)*float64(budget))) - b
	for n > 1 && s.cfg.costOf(n, c) > budget { // the root is rounded
		n--
	}
	for s.cfg.costOf(n+1, c) <= budget {
		n++
	}
	return max(n, 1)
}
