package scheduler

import "github.com/coppice-llm/coppice/kv"

// growth returns how many pages a running sequence is expected to need beyond those that
// it holds. Example: with pages of 16, a prompt of 100 tokens, 20 of output so far and 60
// more expected, the last of which is never run, it needs CeilPages(179) = 12 pages; if it
// holds 8, growth is 4.
func (r *runningSet) growth(q *sequence) int {
	out := q.outputTokens() + int(q.rows.sampling)
	if out >= q.limit {
		return 0
	}
	more := r.lengths.Remaining(q.group.class, out, q.limit)
	// The last token is sampled and never run.
	return max(kv.CeilPages(q.prompt+out+more-1, r.pageTokens)-len(q.table.pages), 0)
}

// reserve returns how many pages running sequences are expected to need beyond those that
// they hold. newcomer, a waiting sequence, must leave these pages over; otherwise it, or
// another sequence, would soon be preempted. Under the policy Priority sequences that
// newcomer may preempt do not count, so the sum depends on newcomer. Under other policies
// the sum is computed once in a pass.
func (r *runningSet) reserve(newcomer *sequence) int {
	if !r.cfg.byPriority() {
		if r.reserved < 0 {
			r.reserved = 0
			for _, q := range r.all {
				r.reserved += r.growth(q)
			}
		}
		return r.reserved
	}
	n := 0
	for _, q := range r.all {
		if !r.cfg.mayReplace(newcomer, q) {
			n += r.growth(q)
		}
	}
	return n
}

// reserveFor adds the growth of q, which was just admitted, to the sum of this pass, if
// reserve has computed one.
func (r *runningSet) reserveFor(q *sequence) {
	if r.reserved >= 0 {
		r.reserved += r.growth(q)
	}
}
