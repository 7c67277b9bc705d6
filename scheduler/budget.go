package scheduler

import "math"

const (
	// longSteps is the number of whole steps beyond which a prompt counts as long.
	longSteps = 4
	// maxLong bounds the long prompts that are computed at a time. They share one chunk, so
	// more of them would hold pages and finish no sooner. With two, the shorter of them can
	// still finish before the longer one.
	maxLong = 2
)

// costOf returns what n prompt tokens with context tokens before them take of a step's
// budget: 1 for each, plus 1 for each AttentionTokens of context that it attends to. Token
// i has context+i tokens before it; the sum over n tokens, with (n-1)/2 rounded to n/2, is
//
//	cost(n, c) = n + n·(2c+n) / (2·AttentionTokens), rounded up
//
// For example, 100 tokens after 1,000 with AttentionTokens 500 cost 100 + 100·2100/1000 =
// 310.
func (c *Config) costOf(n, context int) int {
	k := c.AttentionTokens
	if k < 0 {
		return n
	}
	return n + (n*(2*context+n)+2*k-1)/(2*k)
}

// isLong reports whether the tokens [from, to) of a prompt cost more than longSteps whole
// steps. A prompt that is nearly all cached is not long, however many tokens it has.
func (c *Config) isLong(from, to int) bool { return c.costOf(to-from, from) > longSteps*c.StepTokens }

// lastLong returns the long prompt that a waiting long prompt must outrank to be admitted.
// prefilling lists the sequences whose prompts are being computed, in order of admission.
// If fewer than maxLong (2) of them are long, lastLong returns nil: then any long prompt may
// be admitted. Otherwise it returns the one with the maxLong-th highest priority. Under
// policies other than Priority all priorities count as equal, so no third long prompt is
// admitted while two are computed.
func (c *Config) lastLong(prefilling []*sequence) *sequence {
	var first [maxLong]*sequence // by priority, highest first; equal ones by admission
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

// tokensFor is the inverse of costOf: it returns the largest n with cost(n, context) <=
// budget, but at least 1 if budget is above 0, and 0 if it is not. With k AttentionTokens,
// n is the positive root of
//
//	n² + 2(k+context)·n − 2k·budget = 0
//
// rounded down. In the example of costOf, a budget of 310 after 1,000 tokens pays for 100.
func (c *Config) tokensFor(budget, context int) int {
	k := c.AttentionTokens
	if k < 0 || budget <= 1 {
		return max(budget, 0)
	}
	b := k + context
	n := int(math.Sqrt(float64(b)*float64(b)+2*float64(k)*float64(budget))) - b
	for n > 1 && c.costOf(n, context) > budget { // float64 rounds the root
		n--
	}
	for c.costOf(n+1, context) <= budget {
		n++
	}
	return max(n, 1)
}
