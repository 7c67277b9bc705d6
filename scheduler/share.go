package scheduler

import (
	"cmp"
	"slices"
)

// chunk is a prompt's part of a step.
type chunk struct {
	q      *sequence
	tokens int
}

// oldestShare is what of a budget the prompt that was admitted first gets at
// least, however many shorter ones there are.
func oldestShare(budget int) int { return (budget + 3) / 4 }

// prompts is what prompts may take of a step in which so many others decode: within the
// budget, and within the target time.
func (b *budget) prompts(decoding int) int {
	n := b.cfg.promptBudget(decoding)
	if decoding > 0 && b.time.target > 0 {
		n = min(n, b.time.fits(decoding, b.context))
	}
	return n
}

// promptBudget is what prompts may take of a step in which so many others decode.
func (c *Config) promptBudget(decoding int) int {
	if decoding == 0 {
		return c.StepTokens
	}
	return max(c.StepTokens-decoding, c.PromptFloor, 0)
}

// hasBudget reports whether q, or with nil any newcomer, would get tokens in this
// step, or soon: of the prompts that are being computed and that q does not outrank,
// all but the oldest, which has a share of its own, take less than the rest. Long ones
// take one chunk together.
func (c *Config) hasBudget(prefilling []*sequence, budget int, q *sequence) bool {
	others, rest := 0, budget-oldestShare(budget)
	long := c.ChunkTokens
	for i, r := range prefilling {
		if q != nil && c.ranks(q, r) > 0 {
			continue
		}
		others++
		switch cost := min(c.costOf(r.target-r.computed, r.computed), c.ChunkTokens); {
		case i == 0 || !r.prefilling():
		case c.isLong(r.computed, r.target):
			if !c.isLong(prefilling[0].computed, prefilling[0].target) { // else it has its part of that chunk
				rest -= long
				long = 0
			}
		default:
			rest -= cost
		}
	}
	return others == 0 || others < c.MaxPrefilling && rest > 0
}

// budget shares a step among the prompts that are being computed.
type budget struct {
	cfg      *Config
	chunks   []chunk // of the step that is planned
	decoding int     // sequences that decode in it; -1: to be counted
	context  int64   // what these attend to, in tokens, if there is a target
	time     stepTime
	order    []*sequence // scratch
}

// share gives the prompts their chunks of the step and returns what they take of it.
// Under the policy Priority those of the highest priority come first; of equals those
// with least to do, so that a long one does not hold them up. But the one that was
// admitted first gets its share, so that none starves. While others decode, no prompt
// gets more than a chunk, and long ones get one chunk together: however many of them
// there are, they do not make every step a full one.
func (b *budget) share(prefilling []*sequence, decoding int) (cost int) {
	b.order = b.order[:0]
	for _, q := range prefilling {
		if q.prefilling() && q.abort == nil {
			b.order = append(b.order, q)
		}
	}
	tokens := b.prompts(decoding)
	if len(b.order) == 0 || tokens == 0 {
		return 0
	}
	most := tokens
	if decoding > 0 {
		most = b.cfg.ChunkTokens
	}
	cost = b.deal(tokens, most)
	clear(b.order)
	return min(cost, tokens) // a token that costs more than there is takes no row from others
}

// deal is share of so many tokens, at most so many for one prompt.
func (b *budget) deal(tokens, most int) int {
	cfg, left, long := b.cfg, tokens, most
	first := b.order[0]
	kept := min(oldestShare(tokens), cfg.costOf(first.target-first.computed, first.computed), most)
	keptLong := 0
	if cfg.isLong(first.computed, first.target) {
		kept = min(kept, (long+1)/2)
		keptLong = kept
	}
	slices.SortStableFunc(b.order, func(x, y *sequence) int {
		return cmp.Or(cmp.Compare(cfg.ranks(y, x), 0), cmp.Compare(x.target-x.computed, y.target-y.computed))
	})
	for _, q := range b.order {
		if q == first {
			kept, keptLong = 0, 0
		}
		share := min(left-kept, most)
		isLong := cfg.isLong(q.computed, q.target)
		if isLong {
			share = min(share, long-keptLong)
		}
		// One token may cost more than is left; only the first one overdraws.
		if share <= 0 || q != first && cfg.costOf(1, q.computed) > share {
			continue
		}
		n := min(cfg.tokensFor(share, q.computed), q.target-q.computed)
		if n == 0 {
			continue
		}
		b.chunks = append(b.chunks, chunk{q, n})
		cost := cfg.costOf(n, q.computed)
		left -= cost
		if isLong {
			long -= cost
		}
	}
	return tokens - left
}
