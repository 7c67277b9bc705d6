package scheduler

import "github.com/coppice-llm/coppice/internal/scheduler/planted"

// chargePrompt puts what is going to be computed of q's prompt in its tenant's
// account: at its first admission, so that nobody is admitted on tokens that have not
// been counted yet.
func (a *accounts) chargePrompt(q *sequence) {
	q.tenant.serve(q.prompt - q.cachedTokens)
	if a.fault == planted.ChargeCached {
		q.tenant.position += int64(q.cachedTokens)
	}
}

// count notes that a row runs tokens [from, to).
func (q *sequence) count(from, to int) {
	to = min(to, q.prompt)
	q.ran += max(to-max(from, q.ranTo), 0)
	q.ranTo = max(q.ranTo, to)
}

// settlePrompt takes back what was charged and not computed, of a sample that ends,
// and returns what was computed.
func (q *sequence) settlePrompt() (computed int) {
	if q.seenSlot {
		charged := q.prompt - q.cachedTokens
		computed = min(q.ran, charged)
		q.tenant.serve(computed - charged)
	}
	return computed
}
