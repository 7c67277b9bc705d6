package scheduler

import (
	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/kv"
)

// Plan is one step: the batch for the backend and, behind it, whose rows they
// are. It belongs to the backend until its ticket is done, then it goes back
// through Complete, which reuses it.
type Plan struct {
	Batch engine.Batch

	rows   []*sequence // by row
	starts []int       // computed before the row
	pages  []kv.PageID // arena of the rows' page lists: sequences change theirs while the plan runs
}

// Tokens is the number of tokens that the plan runs.
func (p *Plan) Tokens() int {
	n := 0
	for i := range p.Batch.Rows {
		n += p.Batch.Rows[i].Len()
	}
	return n
}

func (p *Plan) reset(seq uint64) {
	b := &p.Batch
	*b = engine.Batch{Seq: seq, After: b.After[:0], Binds: b.Binds[:0], Copies: b.Copies[:0], Rows: b.Rows[:0]}
	p.rows, p.starts, p.pages = p.rows[:0], p.starts[:0], p.pages[:0]
}

// add appends a row that runs n tokens of q.
func (p *Plan) add(q *sequence, n, pageTokens int) {
	end := q.computed + n
	row := engine.Row{
		Slot:  q.slot,
		Start: int32(q.computed),
		Pages: p.keep(q.pages[:kv.CeilPages(end, pageTokens)]),
	}
	if q.prefilling() {
		row.Tokens = q.tokens[q.computed:end]
		row.Sample = end == q.target
	} else {
		row.Deferred, row.Sample = true, true
	}
	row.SampleIndex = int32(q.outputTokens())
	row.Digest = row.Sample && q.req.Digest // elsewhere it would cost the head for nothing
	p.Batch.Rows = append(p.Batch.Rows, row)
	p.rows = append(p.rows, q)
	p.starts = append(p.starts, q.computed)
	q.computed = end
	q.inPlan = true
}

// keep copies pages into the arena. Growing moves the arena; slices cut before
// keep the old one alive.
func (p *Plan) keep(pages []kv.PageID) []kv.PageID {
	lo := len(p.pages)
	p.pages = append(p.pages, pages...)
	return p.pages[lo:len(p.pages):len(p.pages)]
}
