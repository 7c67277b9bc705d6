package scheduler

import "cmp"

// This file has the only comparison of priorities. It sorts the queue under the policy
// Priority, divides the step among prompts, selects the sequences to preempt, and the
// requests that a full queue ends. SGLang and vLLM have it as priority scheduling.

// lead returns by how much the priority of q exceeds that of o. The difference of two
// int32 needs an int64.
func (q *sequence) lead(o *sequence) int64 { return int64(q.req.Priority) - int64(o.req.Priority) }

// comparePrecedence sorts sequences by precedence: higher priority first, then older.
func comparePrecedence(a, b *sequence) int {
	if lead := b.lead(a); lead != 0 {
		return cmp.Compare(lead, 0)
	}
	return cmp.Compare(a.arrival, b.arrival)
}

// ranks compares two prompts by priority under the policy Priority: above 0 if a's is
// higher. Under other policies it returns 0: there priority only decides which sequence is
// preempted first when pages run out, and which request a full queue ends.
func (c *Config) ranks(a, b *sequence) int64 {
	if !c.byPriority() {
		return 0
	}
	return a.lead(b)
}

// mayReplace reports whether a waiting q may preempt a running r, as opposed to a running
// sequence that needs a page, see demand.mayPreempt.
func (c *Config) mayReplace(q, r *sequence) bool {
	return c.byPriority() && q.lead(r) >= int64(c.PreemptThreshold)
}

// compareCost sorts sequences by the cost of preempting them: lower priority first, then
// the fewer tokens computed by itself, then the younger. Tokens that a sequence found
// cached do not count, as others or the tree usually keep them. For example, a sequence at
// 4,000 tokens of which 3,900 were cached goes before one at 500 that computed all of
// them.
func compareCost(a, b *sequence) int {
	if lead := a.lead(b); lead != 0 {
		return cmp.Compare(lead, 0)
	}
	if c := cmp.Compare(a.done-a.cache.matched, b.done-b.cache.matched); c != 0 {
		return c
	}
	return cmp.Compare(b.arrival, a.arrival)
}
