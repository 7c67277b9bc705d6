package scheduler

import (
	"cmp"
	"slices"
	"time"

	"github.com/coppice-llm/coppice/scheduler/internal/predict"
)

// chunk is a prompt's part of a step: the next tokens of q, as many as tokens says.
type chunk struct {
	q      *sequence
	tokens int
}

// oldestShare returns the part of a budget that the prompt admitted first gets at least,
// however many shorter ones there are: a quarter, rounded up.
func oldestShare(budget int) int { return (budget + 3) / 4 }

// prompts returns how many tokens prompts may cost in a step in which as many sequences
// decode as decoding says: the smaller of the token budget and the tokens that fit into the
// target time.
func (b *budget) prompts(decoding int) int {
	n := b.cfg.promptBudget(decoding + b.drafts)
	if decoding > 0 && b.time.Targets() {
		n = min(n, b.time.Fits(decoding, b.context, b.drafts))
	}
	return n
}

// promptBudget returns the token budget for prompts in a step; decoding is the number of
// its decode rows. With StepTokens 256 and PromptFloor 64 the budget is 156 with 100 rows,
// and 64 with 256.
func (c *Config) promptBudget(decoding int) int {
	if decoding == 0 {
		return c.StepTokens
	}
	return max(c.StepTokens-decoding, c.PromptFloor, 0)
}

// hasBudget reports whether q, or any new sequence if q is nil, would get tokens in this
// step or soon. prefilling lists the running sequences whose prompts are being computed,
// the oldest admission first, and budget is the part of the step that is left to prompts.
// hasBudget subtracts from budget the part of the oldest prompt, which is a quarter, and
// the next chunks of the other prompts that q does not outrank; long prompts count as one
// chunk together. It returns true if something is left. It also returns true if q outranks
// all prompts, and false if q does not outrank MaxPrefilling of them.
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
			// If the oldest is long, its quarter is its part of that chunk.
			if !c.isLong(prefilling[0].computed, prefilling[0].target) {
				rest -= long
				long = 0
			}
		default:
			rest -= cost
		}
	}
	return others == 0 || others < c.MaxPrefilling && rest > 0
}

// budget divides a step among the prompts that are being computed.
type budget struct {
	cfg      *Config
	chunks   []chunk // of the step that is being planned
	decoding int     // sequences that decode in it; -1: must be counted
	context  int64   // sum of their context in tokens
	drafts   int     // of these sequences, in the step that is being planned
	time     predict.Steps
	order    []*sequence // scratch of deal
}

// count returns the number of sequences that can have a decode row now, as grow has counted
// them. After a preemption it counts again.
func (b *budget) count(r *runningSet) int {
	if b.decoding < 0 {
		b.decoding, b.context = 0, 0
		for _, q := range r.all {
			if q.decodes(r.pageTokens) {
				b.decoding++
				b.context += int64(q.computed)
			}
		}
	}
	return b.decoding
}

// learn corrects the predictions by the time that the device measured for the plan p, in
// nanoseconds. It returns the number of prompt tokens in p and the time that they took, for the
// tiering policy; zeros if nothing uses the corrections, the time is not positive, or p has no
// rows or no prompt tokens.
func (b *budget) learn(p *Plan, nanos int64) (tokens int, prompts time.Duration) {
	if !b.time.Learns() || nanos <= 0 || len(p.rows) == 0 {
		return 0, 0
	}
	shape := p.shape()
	return b.time.Learn(&shape, len(p.rows), p.tokens, nanos)
}

// draftedStep compares a step that had drafts with one that had none.
type draftedStep struct {
	base     float64 // predicted seconds without drafts
	seconds  float64 // measured; 0: the steps can't be compared
	accepted int
}

// drafted returns the times of plan p, for which the device measured nanos. Seconds is 0 if p has no
// drafts, or if it has prompts: errors in the prediction of these would exceed what drafts gain.
func (b *budget) drafted(p *Plan, nanos int64) (d draftedStep) {
	if p.drafted == 0 || nanos <= 0 || !b.time.Learns() {
		return d
	}
	shape := p.shape()
	if shape.PromptTokens > 0 {
		return d
	}
	shape.Drafts, shape.DraftPairs = 0, 0
	d.base, d.seconds = b.time.Predict(&shape), time.Duration(nanos).Seconds()
	if !(d.base > 0) {
		d.seconds = 0
	}
	return d
}

// share sets b.chunks, the prompts' parts of the step, and returns their cost. prefilling
// lists the sequences whose prompts are being computed, by admission; decoding is the
// number of decode rows.
//
// Under the policy Priority the highest priority comes first; among equals the prompt with
// the fewest tokens left, so that a long prompt does not delay short ones (shortest
// remaining time first). The prompt that was admitted first gets at least a quarter, so
// that none starves. While others decode, no prompt gets more than ChunkTokens, and all
// long prompts together get one such chunk, so that any number of them leaves steps short.
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
	// One token late in a long prompt may cost more than the budget. The budget of decode
	// rows does not shrink for that.
	return min(cost, tokens)
}

// deal divides a budget among the prompts in b.order and returns the cost of the chunks
// that it made. tokens is the budget, and most is the limit for a single prompt. b.order is
// sorted by admission at the call; deal sorts it by priority and by tokens left. The prompt
// that was admitted first may come late in that order. Until its turn, the amount kept is
// set aside for it, and if it is long, the amount keptLong of the chunk that long prompts
// share.
func (b *budget) deal(tokens, most int) int {
	cfg, left, long := b.cfg, tokens, most
	first := b.order[0]
	kept := min(oldestShare(tokens), cfg.costOf(first.target-first.computed, first.computed), most)
	keptLong := 0
	if cfg.isLong(first.computed, first.target) {
		// A first prompt that is long leaves half of the chunk to the other long one.
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
		// One token may cost more than the whole share. The prompt that was admitted first
		// gets a token nevertheless, or it would never end; the others get none.
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
