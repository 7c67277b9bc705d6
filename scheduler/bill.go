package scheduler

import "time"

// bill collects the figures of an Ending.
type bill struct {
	reached      int // highest position computed before a preemption; below it, rows recompute
	cachedTokens int // at first admission
	ran, ranTo   int // prompt tokens that its rows ran, each counted once; largest end of these rows
	preemptions  int
	arrived      time.Duration // time of Add
	queued       time.Duration
	firstToken   time.Duration
	seenToken    bool // firstToken is set
	seenSlot     bool // it was admitted before
	begun        bool // it has had a row
	timed        bool // Request.Timeline: timeline is kept
	timeline     []Mark
}

// mark appends to the timeline if the request asked for one.
func (b *bill) mark(now time.Duration, what Moment, tokens int) {
	if b.timed {
		b.timeline = append(b.timeline, Mark{now - b.arrived, what, tokens})
	}
}

// count notes that a row runs tokens [from, to) of a sequence whose prompt has prompt tokens. It
// adds prompt tokens to b.ran, each once: tokens below ranTo were counted before a preemption, and
// tokens beyond the prompt are output.
func (b *bill) count(from, to, prompt int) {
	to = min(to, prompt)
	b.ran += max(to-max(from, b.ranTo), 0)
	b.ranTo = max(b.ranTo, to)
}

// settlePrompt refunds, when a sample ends, the prompt tokens that were charged and not
// computed, and returns those that were. It returns 0 for a sample that was never
// admitted.
func (q *sequence) settlePrompt() (computed int) {
	if q.bill.seenSlot {
		charged := q.prompt - q.bill.cachedTokens
		computed = min(q.bill.ran, charged)
		q.group.tenant.Serve(computed - charged)
	}
	return computed
}
