package scheduler

import (
	"slices"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/mempool/tiering"
)

// Plan is one step: the batch for the backend, and the sequences of its rows. It belongs to
// the backend until its ticket is done, then it goes back through Complete, which reuses it.
// Rows alias their sequences' tokens and pages, which are only appended to while a row is in
// flight.
type Plan struct {
	Batch engine.Batch
	// Moves are to be begun, in this order, before Batch is submitted. Each Write, Read and
	// Drop is answered by one Moved; a Cancel is not. A plan may have moves and no rows.
	// Batch.After names Writes whose pages the batch overwrites.
	Moves []tiering.Move

	rows   []planned // by row
	tokens int
	begun  []RequestID
	masks  *maskTable
}

// plans are those that run, the masks that they name, and others to reuse.
type plans struct {
	inflight []*Plan // oldest first
	spare    []*Plan
	last     uint64 // Seq of the latest plan that had rows
	masks    maskTable
}

// take returns an empty plan, with the Seq that follows.
func (ps *plans) take() *Plan {
	var p *Plan
	if n := len(ps.spare); n > 0 {
		p, ps.spare = ps.spare[n-1], ps.spare[:n-1]
	} else {
		p = &Plan{masks: &ps.masks}
	}
	p.reset(ps.last + 1)
	return p
}

// planned is the sequence of a row. Its life differs if it has left the device since.
type planned struct {
	q      *sequence
	life   uint32
	start  int32 // computed before the row
	end    int32 // and after it
	sample bool
}

// Tokens is the number of tokens that the plan runs.
func (p *Plan) Tokens() int { return p.tokens }

// Begun lists the requests of which a sample has a row for the first time, once each.
func (p *Plan) Begun() []RequestID { return p.begun }

// Request returns the request and sample of row i.
func (p *Plan) Request(i int) (id RequestID, sample int) {
	q := p.rows[i].q
	return q.req.ID, q.sample
}

func (p *Plan) reset(seq uint64) {
	b := &p.Batch
	*b = engine.Batch{Seq: seq, After: b.After[:0], Binds: b.Binds[:0], Swaps: b.Swaps[:0], Copies: b.Copies[:0], Drops: b.Drops[:0], Masks: b.Masks[:0], Rows: b.Rows[:0]}
	p.rows, p.tokens, p.begun, p.Moves = p.rows[:0], 0, p.begun[:0], p.Moves[:0]
}

// release lets go of what the plan points to, or what has ended would be kept alive.
func (p *Plan) release() {
	clear(p.rows)
	clear(p.Moves)
	clear(p.Batch.Rows)
	clear(p.Batch.Binds)
	clear(p.Batch.Masks)
}

// decode appends a row that runs the token which q samples last.
func (p *Plan) decode(q *sequence) {
	n := len(p.Batch.Rows)
	if n == cap(p.Batch.Rows) {
		p.Batch.Rows = slices.Grow(p.Batch.Rows, 1)
	}
	p.Batch.Rows = p.Batch.Rows[:n+1]
	r := &p.Batch.Rows[n] // zero: release has cleared it
	r.Slot, r.Start, r.Deferred, r.Sample, r.Digest = q.slot, int32(q.computed), true, true, q.digest
	r.Pages = q.newPages()
	// What plans in flight sample has its place already.
	r.SampleIndex = int32(q.outputTokens() + int(q.sampling))
	if q.shaped {
		p.maskRow(q, r)
	}
	p.add(q, 1, true)
}

// prefill appends a row that runs the next n tokens of q's prompt, or of all that
// it had when it was preempted.
func (p *Plan) prefill(q *sequence, n int) {
	end := q.computed + n
	sample := end == q.target
	p.Batch.Rows = append(p.Batch.Rows, engine.Row{
		Slot:        q.slot,
		Start:       int32(q.computed),
		Tokens:      q.tokens[q.computed:end],
		Pages:       q.newPages(),
		Sample:      sample,
		SampleIndex: int32(q.outputTokens()),
		Digest:      sample && q.digest, // elsewhere it would cost the head for nothing

		PromptLogprobs: q.wantsPrompt(),
	})
	if r := &p.Batch.Rows[len(p.Batch.Rows)-1]; r.PromptLogprobs {
		r.PromptTop = q.req.PromptTop
	}
	if q.shaped && sample {
		p.maskRow(q, &p.Batch.Rows[len(p.Batch.Rows)-1])
	}
	p.add(q, n, sample)
}

// newPages are those that the slot's table lacks; after the plan it has them.
func (q *sequence) newPages() []kv.PageID {
	pages := q.pages[q.given:]
	q.given = len(q.pages)
	return pages
}

func (p *Plan) add(q *sequence, n int, sample bool) {
	p.rows = append(p.rows, planned{q, q.life, int32(q.computed), int32(q.computed + n), sample})
	q.computed += n
	q.inflight++
	if sample {
		q.sampling++
	}
	p.tokens += n
	if !q.begun {
		q.begun = true
		if !q.group.begun {
			q.group.begun = true
			p.begun = append(p.begun, q.req.ID)
		}
	}
}
