package scheduler

import (
	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/kv"
)

// Plan is one step: the batch for the backend and, behind it, whose rows they
// are. It belongs to the backend until its ticket is done, then it goes back
// through Complete, which reuses it. Rows alias their sequences' tokens and pages,
// which are only appended to while a row is out.
type Plan struct {
	Batch engine.Batch

	rows   []planned // by row
	tokens int
}

// planned is whose row it is. If the sequence has left the device since, life tells.
type planned struct {
	q      *sequence
	life   uint32
	start  int32 // computed before the row
	end    int32 // and after it
	sample bool
}

// Tokens is the number of tokens that the plan runs.
func (p *Plan) Tokens() int { return p.tokens }

// Request is whose row i is, and which of its samples.
func (p *Plan) Request(i int) (id RequestID, sample int) {
	q := p.rows[i].q
	return q.req.ID, q.sample
}

func (p *Plan) reset(seq uint64) {
	b := &p.Batch
	*b = engine.Batch{Seq: seq, After: b.After[:0], Binds: b.Binds[:0], Copies: b.Copies[:0], Rows: b.Rows[:0]}
	p.rows, p.tokens = p.rows[:0], 0
}

// release lets go of what the plan points to, or what has ended would be kept alive.
func (p *Plan) release() {
	clear(p.rows)
	clear(p.Batch.Rows)
	clear(p.Batch.Binds)
}

// decode appends a row that runs the token which q samples last.
func (p *Plan) decode(q *sequence, pageTokens int) {
	p.Batch.Rows = append(p.Batch.Rows, engine.Row{
		Slot:     q.slot,
		Start:    int32(q.computed),
		Deferred: true,
		Pages:    q.pages[:q.computed/pageTokens+1],
		Sample:   true,
		// What plans in flight sample has its place already.
		SampleIndex: int32(q.outputTokens() + int(q.ahead)),
		Digest:      q.digest,
	})
	if q.shaped {
		q.maskRow(&p.Batch.Rows[len(p.Batch.Rows)-1])
	}
	p.add(q, 1, true)
}

// prefill appends a row that runs the next n tokens of q's prompt, or of all that
// it had when it was preempted.
func (p *Plan) prefill(q *sequence, n, pageTokens int) {
	end := q.computed + n
	sample := end == q.target
	p.Batch.Rows = append(p.Batch.Rows, engine.Row{
		Slot:        q.slot,
		Start:       int32(q.computed),
		Tokens:      q.tokens[q.computed:end],
		Pages:       q.pages[:kv.CeilPages(end, pageTokens)],
		Sample:      sample,
		SampleIndex: int32(q.outputTokens()),
		Digest:      sample && q.digest, // elsewhere it would cost the head for nothing

		PromptLogprobs: q.wantsPrompt(),
	})
	if q.shaped && sample {
		q.maskRow(&p.Batch.Rows[len(p.Batch.Rows)-1])
	}
	p.add(q, n, sample)
}

func (p *Plan) add(q *sequence, n int, sample bool) {
	p.rows = append(p.rows, planned{q, q.life, int32(q.computed), int32(q.computed + n), sample})
	q.computed += n
	q.pending++
	if sample {
		q.ahead++
	}
	p.tokens += n
}
