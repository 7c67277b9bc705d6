package scheduler

import (
	"slices"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/mempool/tiering"
	"github.com/coppice-llm/coppice/scheduler/internal/masks"
)

// Plan is one step: the batch for the backend, and the sequences of its rows. The backend
// owns it until its ticket is done; then it returns through Complete, which reuses it.
// Binds and rows alias their sequences' tokens and pages, which are only appended to while the
// plan is in flight.
type Plan struct {
	Batch engine.Batch
	// Moves must be started, in this order, before Batch is submitted. Each Write, Read
	// and Drop is answered by one Moved; a Cancel is not. A plan may have moves and no
	// rows. Batch.After names the Writes that must have read their pages before the batch
	// overwrites these.
	Moves []tiering.Move

	rows       []planned       // by row of Batch
	tokens     int             // see Tokens
	drafted    int             // drafts of all rows
	draftMasks []engine.MaskID // those of all rows: DraftMasks alias it
	drafts     []kv.Token      // those of all rows: Drafts alias it
	begun      []RequestID     // see Begun
	masks      *masks.Table
}

// plans are the plans in flight, the masks that they name, and plans to reuse.
type plans struct {
	inflight []*Plan // oldest first
	spare    []*Plan
	last     uint64 // Seq of the latest plan that was launched
	masks    masks.Table
}

// take returns an empty plan with the next Seq. The Seq is used only if the plan is
// launched.
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

// read reports whether a plan in flight reads q's page list: one with a row of q, or the one
// that binds q's slot, which may have no row of q.
func (ps *plans) read(q *sequence) bool {
	return q.rows.inflight > 0 || len(ps.inflight) > 0 && ps.inflight[0].Batch.Seq <= q.table.since
}

// planned is a row of a plan on the side of the scheduler. life is a copy of the sequence's
// life when the row was planned: if the two differ later, the sequence has left the device
// since.
type planned struct {
	q      *sequence
	life   uint32
	start  int32 // tokens computed before the row
	end    int32 // and after it, drafts not included
	drafts int32
	source DraftSource // of the drafts
	sample bool
}

// Tokens returns the number of tokens that the plan runs: 1 for each decode row, with its drafts, and
// the chunks of prompts.
func (p *Plan) Tokens() int { return p.tokens }

// shape returns what determines the cost of p.
func (p *Plan) shape() (shape engine.StepShape) {
	for i := range p.rows {
		r := &p.rows[i]
		shape.Add(int(r.start), int(r.end-r.start))
		shape.AddDrafts(int(r.end), int(r.drafts))
	}
	return shape
}

// doneMasks notes that the row r has completed.
func (p *Plan) doneMasks(r *engine.Row) {
	if r.Mask != 0 {
		p.masks.Done(r.Mask)
	}
	for _, id := range r.DraftMasks {
		p.masks.Landed(id)
	}
}

// Begun returns the requests for which this plan has the first row of any of their samples,
// each request once.
func (p *Plan) Begun() []RequestID { return p.begun }

// Request returns the request of row i of Batch, and the number of its sample.
func (p *Plan) Request(i int) (id RequestID, sample int) {
	q := p.rows[i].q
	return q.req.ID, q.sample
}

// reset empties the plan, keeps its slices, and gives its batch the number seq.
func (p *Plan) reset(seq uint64) {
	b := &p.Batch
	*b = engine.Batch{Seq: seq, After: b.After[:0], Binds: b.Binds[:0], Swaps: b.Swaps[:0], Copies: b.Copies[:0], Drops: b.Drops[:0], Masks: b.Masks[:0], Rows: b.Rows[:0]}
	p.rows, p.tokens, p.begun, p.Moves = p.rows[:0], 0, p.begun[:0], p.Moves[:0]
	p.drafted, p.drafts, p.draftMasks = 0, p.drafts[:0], p.draftMasks[:0]
}

// release clears what the plan points to; otherwise a spare plan would keep ended
// sequences alive.
func (p *Plan) release() {
	clear(p.rows)
	clear(p.Moves)
	clear(p.Batch.Rows)
	clear(p.Batch.Binds)
	clear(p.Batch.Masks)
}

// decode appends a row of one token, the one that q sampled last. It is Deferred: the
// backend itself feeds the slot's last sampled token, which the scheduler may not know
// yet.
func (p *Plan) decode(q *sequence) {
	n := len(p.Batch.Rows)
	if n == cap(p.Batch.Rows) {
		p.Batch.Rows = slices.Grow(p.Batch.Rows, 1)
	}
	p.Batch.Rows = p.Batch.Rows[:n+1]
	r := &p.Batch.Rows[n] // zero: release has cleared it
	r.Slot, r.Start, r.Deferred, r.Sample, r.Digest = q.table.slot, int32(q.computed), true, true, q.rows.digest
	r.Pages = q.table.newPages()
	// Samples in flight have their index already: with 5 known tokens and 1 in flight, the
	// indices 0 to 5 are taken, and this row samples token 6.
	r.SampleIndex = int32(q.outputTokens() + int(q.rows.sampling))
	if q.text.checked {
		p.maskRow(q, r)
	}
	p.add(q, 1, true)
	if s := q.rows.drafts; s != nil && len(s.next) > 0 {
		p.draft(q, s, r)
	}
}

// draft adds the drafts that were chosen for q to its row r, the last one of the plan. Fewer are added
// if the backend has no place for their masks.
func (p *Plan) draft(q *sequence, s *drafting, r *engine.Row) {
	from, masksFrom := len(p.drafts), len(p.draftMasks)
	p.drafts = append(p.drafts, s.next...)
	if q.group.allowed.early != nil || s.walk != nil {
		p.maskDrafts(q, s, r)
		r.DraftMasks = p.draftMasks[masksFrom:len(p.draftMasks):len(p.draftMasks)]
		p.drafts = p.drafts[:from+len(r.DraftMasks)]
	}
	r.Drafts = p.drafts[from:len(p.drafts):len(p.drafts)]
	n, at := len(r.Drafts), &p.rows[len(p.rows)-1]
	s.next, s.inflight = nil, n
	at.drafts, at.source = int32(n), s.source
	q.computed += n
	p.tokens += n
	p.drafted += n
}

// prefill appends a row that runs the next n tokens of q, all of them known: of its prompt,
// or after a preemption also of its output. The row that reaches q.target samples a token, or gives the
// prompt's embedding.
func (p *Plan) prefill(q *sequence, n int) {
	end := q.computed + n
	last := end == q.target
	sample := last && q.req.Pooling == NoPooling
	p.Batch.Rows = append(p.Batch.Rows, engine.Row{
		Slot:        q.table.slot,
		Start:       int32(q.computed),
		Tokens:      q.tokens[q.computed:end],
		Pages:       q.table.newPages(),
		Sample:      sample,
		SampleIndex: int32(q.outputTokens()),
		Digest:      sample && q.rows.digest, // other rows have no logits

		PromptLogprobs: q.wantsPrompt(),
		Hidden:         q.hidden(last),
	})
	if r := &p.Batch.Rows[len(p.Batch.Rows)-1]; r.PromptLogprobs {
		r.PromptTop = q.req.PromptTop
	}
	if q.text.checked && sample {
		p.maskRow(q, &p.Batch.Rows[len(p.Batch.Rows)-1])
	}
	p.add(q, n, sample)
}

// add records that the plan has a row of q's next n tokens; sample says whether the row
// samples a token.
func (p *Plan) add(q *sequence, n int, sample bool) {
	p.rows = append(p.rows, planned{q: q, life: q.rows.life, start: int32(q.computed), end: int32(q.computed + n), sample: sample})
	q.computed += n
	q.rows.inflight++
	if sample {
		q.rows.sampling++
	}
	p.tokens += n
	if !q.bill.begun {
		q.bill.begun = true
		if !q.group.begun {
			q.group.begun = true
			p.begun = append(p.begun, q.req.ID)
		}
	}
}
