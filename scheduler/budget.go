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

// isLong reports whether the tokens [from, to) of a prompt take longSteps whole steps.
func (c *Config) isLong(from, to int) bool { return c.costOf(to-from, from) > longSteps*c.StepTokens }

// lastLong returns, if maxLong long prompts are being computed, the last of the first
// maxLong by priority: another long one must outrank it. Else it returns nil.
func (c *Config) lastLong(prefilling []*sequence) *sequence {
	var first [maxLong]*sequence // by rank, highest first
	for _, q := range prefilling {
		if !c.isLong(q.computed, q.target) {
			continue
		}
		for i, r := range first {
			if r == nil || c.ranks(q, r) > 0 {
				copy(first[i+1:], first[i:])
				first[i] = q
				break
			}
		}
	}
	return first[maxLong-1]
}

// tokensFor is how many tokens behind c others a budget pays, at least 1 if there
// is any: the positive root of n² + 2(k+c)·n − 2k·budget.
func (c *Config) tokensFor(budget, context int) int {
	k := c.AttentionTokens
	if k < 0 || budget <= 1 {
		return max(budget, 0)
	}
	b := k + context
	n := int(math.Sqrt(float64(b)*float64(b)+2*float64(k)*float64(budget))) - b
	for n > 1 && c.costOf(n, context) > budget { // the root is rounded
		n--
	}
	for c.costOf(n+1, context) <= budget {
		n++
	}
	return max(n, 1)
}
