package scheduler

import "math"

// costOf is what n prompt tokens behind c others take of a step's budget: each
// its own 1, and 1 per AttentionTokens of context. Rounded up.
//
//	cost(n, c) = n + n·(2c+n) / (2·AttentionTokens)
func (s *Scheduler) costOf(n, c int) int {
	k := s.cfg.AttentionTokens
	if k < 0 {
		return n
	}
	return n + (n*(2*c+n)+2*k-1)/(2*k)
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
	for n > 1 && s.costOf(n, c) > budget { // the root is rounded
		n--
	}
	for s.costOf(n+1, c) <= budget {
		n++
	}
	return max(n, 1)
}
