package schedtest

import (
	"errors"
	"slices"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/scheduler"
)

// flight is a submitted plan.
type flight struct {
	plan    *scheduler.Plan
	ticket  engine.Ticket
	seq     uint64
	tokens  int
	copies  int
	samples int
	drafted int
	of      []*sample   // by row
	pages   []kv.PageID // that its rows and copies use, if the pool is shared
}

// plan makes the next plan and submits it. It returns nil if there is none.
func (r *rig) plan() *flight {
	if r.lost != nil || len(r.flights) >= r.info.MaxInflight {
		return nil
	}
	if r.yield() {
		r.pump()
		return nil
	}
	r.retention.before()
	p := r.sched.Next(r.clock.Now())
	if p == nil {
		r.pump()
		return nil
	}
	r.rows = r.book.read(p, r.info.PageTokens, r.rows[:0])
	r.bug.plan(r, p)
	r.plans++
	r.lastSeq = p.Batch.Seq
	r.rows = r.book.read(p, r.info.PageTokens, r.rows[:0])
	r.each(func(c checker) { c.planned(p, r.rows) })
	r.book.apply(r.clock.Now(), p, r.rows)
	r.sum.add(p.Batch, p.Moves)
	r.report.Steps = append(r.report.Steps, r.sum.sum)
	r.report.CopiedPages += len(p.Batch.Copies)
	if r.opts.Trace != nil {
		r.note("%s", r.book.formatPlan(p, r.rows))
	}
	f := &flight{plan: p, seq: p.Batch.Seq, tokens: p.Tokens(), copies: len(p.Batch.Copies)}
	for i := range p.Batch.Rows {
		if p.Batch.Rows[i].Sample {
			f.samples++
		}
		f.drafted += len(p.Batch.Rows[i].Drafts)
		f.of = append(f.of, r.rows[i].of)
	}
	if r.rival != nil {
		f.pages = usedPages(p, r.rows)
	}
	err := r.lower.begin(p)
	if err == nil {
		f.ticket, err = r.device.Submit(&p.Batch)
	}
	if err != nil {
		r.stop(f, err)
		return nil
	}
	r.flights = append(r.flights, f)
	r.pump()
	return f
}

// usedPages returns the pages that the rows and copies of p read or write.
func usedPages(p *scheduler.Plan, rows []rowView) (pages []kv.PageID) {
	for i := range rows {
		pages = append(pages, rows[i].pages...)
	}
	for _, c := range p.Batch.Copies {
		pages = append(pages, c.Src, c.Dst)
	}
	return pages
}

// arrived reports whether the oldest flight is done.
func (r *rig) arrived() bool {
	if len(r.flights) == 0 {
		return false
	}
	_, err := r.flights[0].ticket.Result()
	return !errors.Is(err, engine.ErrPending)
}

// land completes the oldest flight, which must be done.
func (r *rig) land() {
	f := r.flights[0]
	r.flights = slices.Delete(r.flights, 0, 1)
	res, err := f.ticket.Result()
	if err != nil {
		r.stop(f, err)
		return
	}
	r.sum.add(res.Stats.Nanos)
	r.report.RanTokens += res.Stats.GivenTokens + res.Stats.DeferredTokens
	r.report.Drafted, r.report.Confirmed = r.report.Drafted+res.Stats.Drafted, r.report.Confirmed+res.Stats.Confirmed
	r.each(func(c checker) { c.resulted(f, res, nil) })
	r.book.confirm(f, res)
	r.tell(r.sched.Complete(r.clock.Now(), f.plan, r.bug.result(res), r.out[:0]))
	r.each(func(c checker) { c.completed(f.seq) })
	r.pump()
}
