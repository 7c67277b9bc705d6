package scheduler

import "cmp"

// This file is the one rule of priority: what orders the queue under the policy
// Priority, shares the step among prompts, takes pages and slots, and ends the
// least important request of a full queue.

// lead returns by how much the priority of q is above that of o.
func (q *sequence) lead(o *sequence) int64 { return int64(q.req.Priority) - int64(o.req.Priority) }

// comparePrecedence sorts sequences of which one has to wait: the higher priority first,
// of equal ones the older.
func comparePrecedence(a, b *sequence) int {
	if lead := b.lead(a); lead != 0 {
		return cmp.Compare(lead, 0)
	}
	return cmp.Compare(a.arrival, b.arrival)
}

// ranks compares two prompts by priority under the policy Priority: above 0 if a's is
// higher. Under the others all are equal: there priority only says which sequence is
// preempted first when pages run out, and which request a full queue drops.
func (c *Config) ranks(a, b *sequence) int64 {
	if c.Policy != Priority {
		return 0
	}
	return a.lead(b)
}

// mayReplace reports whether q, which waits, may take the place of r, which runs.
func (c *Config) mayReplace(q, r *sequence) bool {
	return c.Policy == Priority && q.lead(r) >= int64(c.PreemptThreshold)
}

// compareCost sorts by the cost of preempting: the lower priority first, then the less
// work of its own that is lost, as what a sequence found cached stays with others; then
// the younger.
func compareCost(a, b *sequence) int {
	if lead := a.lead(b); lead != 0 {
		return cmp.Compare(lead, 0)
	}
	if c := cmp.Compare(a.done-a.matched, b.done-b.matched); c != 0 {
		return c
	}
	return cmp.Compare(b.arrival, a.arrival)
}
