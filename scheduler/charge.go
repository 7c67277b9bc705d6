package scheduler

import "github.com/coppice-llm/coppice/scheduler/internal/planted"

// chargePrompt charges q's tenant, at q's first admission, for the prompt tokens that will
// be computed. Charging them as they are computed would let a tenant have many prompts
// admitted in one pass before the first is counted.
func (a *accounts) chargePrompt(q *sequence) {
	q.tenant.serve(q.prompt - q.cachedTokens)
	if a.fault == planted.ChargeCached {
		q.tenant.position += int64(q.cachedTokens)
	}
}

// count notes that a row of q runs tokens [from, to). It adds prompt tokens to q.ran, each
// once: tokens below ranTo were counted before a preemption, and tokens beyond the prompt
// are output.
func (q *sequence) count(from, to int) {
	to = min(to, q.prompt)
	q.ran += max(to-max(from, q.ranTo), 0)
	q.ranTo = max(q.ranTo, to)
}

// settlePrompt refunds, when a sample ends, the prompt tokens that were charged and not
// computed, and returns those that were. It returns 0 for a sample that was never
// admitted.
func (q *sequence) settlePrompt() (computed int) {
	if q.seenSlot {
		charged := q.prompt - q.cachedTokens
		computed = min(q.ran, charged)
		q.tenant.serve(computed - charged)
	}
	return computed
}
