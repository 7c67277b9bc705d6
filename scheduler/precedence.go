package scheduler

// This file is the one rule of priority: what orders the queue under the policy
// Priority, shares the step among prompts, takes pages and slots, and ends the
// least important request of a full queue.

// lead returns by how much the priority of q is above that of o.
func (q *sequence) lead(o *sequence) int64 { return int64(q.req.Priority) - int64(o.req.Priority) }

// precedes reports whether q comes before o where one of them has to wait: the
// higher priority, of equal ones the older.
func (q *sequence) precedes(o *sequence) bool {
	if lead := q.lead(o); lead != 0 {
		return lead > 0
	}
	return q.arrival < o.arrival
}

// comparePrecedence sorts by precedes.
func comparePrecedence(a, b *sequence) int {
	switch {
	case a == b:
		return 0
	case a.precedes(b):
		return -1
	}
	return 1
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

// cheaper reports whether preempting a costs less than preempting b: the lower
// priority, then the less work of its own that is lost, as what it found cached
// stays with others; of equals the younger.
func cheaper(a, b *sequence) bool {
	if lead := a.lead(b); lead != 0 {
		return lead < 0
	}
	if la, lb := a.done-a.matched, b.done-b.matched; la != lb {
		return la < lb
	}
	return a.arrival > b.arrival
}

// compareCost sorts by cheaper.
func compareCost(a, b *sequence) int {
	switch {
	case a == b:
		return 0
	case cheaper(a, b):
		return -1
	}
	return 1
}
