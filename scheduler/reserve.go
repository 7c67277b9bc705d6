package scheduler

import "github.com/coppice-llm/coppice/kv"

// growth is how many pages a running sequence is expected to need beside those
// that it holds.
func (c *classes) growth(q *sequence, pageTokens int) int {
	out := q.outputTokens() + int(q.sampling)
	if out >= q.limit {
		return 0
	}
	more := q.class.remaining(out, q.limit) * c.care / careOne
	more = min(more, q.limit-out)
	// The last token is sampled and never run.
	return max(kv.CeilPages(q.prompt+out+more-1, pageTokens)-len(q.pages), 0)
}

// reserve returns the pages that running sequences are expected to need: a newcomer leaves them
// alone, or it or another one would soon be preempted. Under the policy Priority
// sequences that the newcomer may replace do not count.
func (r *runningSet) reserve(newcomer *sequence) int {
	if r.cfg.Policy != Priority {
		if r.reserved < 0 {
			r.reserved = 0
			for _, q := range r.all {
				r.reserved += r.classes.growth(q, r.pageTokens)
			}
		}
		return r.reserved
	}
	n := 0
	for _, q := range r.all {
		if !r.cfg.mayReplace(newcomer, q) {
			n += r.classes.growth(q, r.pageTokens)
		}
	}
	return n
}

// reserveFor adds an admitted sequence to what this pass has summed up.
func (r *runningSet) reserveFor(q *sequence) {
	if r.reserved >= 0 {
		r.reserved += r.classes.growth(q, r.pageTokens)
	}
}
