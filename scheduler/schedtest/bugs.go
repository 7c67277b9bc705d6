package schedtest

import (
	"slices"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/scheduler"
)

// spoil is the configuration that a scheduler gets with this bug, while the
// checkers go on believing in cfg.
func spoil(cfg scheduler.Config, plant Plant, info engine.Info) scheduler.Config {
	switch plant {
	case OverBudget:
		cfg.StepTokens = min(2*cfg.StepTokens, info.MaxTokens)
	case LongQueue:
		cfg.MaxQueued *= 2
	case Favour:
		cfg.Quantum = 1 << 20
	case Starve:
		cfg.OldestEvery = 1 << 30
	}
	return cfg
}

// spoilPlan lets the bugs loose that a scheduler's plan would show. Page lists are
// copied first: the scheduler may hold on to them.
func spoilPlan(r *rig, p *scheduler.Plan) {
	rows := p.Batch.Rows
	first := &rows[0]
	switch {
	case len(rows) > 1 && r.planting.due(TwoWriters, r.plans):
		replaceLast(&rows[1], first.Pages[len(first.Pages)-1])
	case !first.Deferred && r.planting.due(WrongStart, r.plans):
		first.Start++
	case !first.Deferred && first.Sample && r.planting.due(SkipSampling, r.plans):
		first.Sample = false
	case r.pool.FreePages() > 0 && r.planting.due(ForeignPage, r.plans):
		pages, err := r.pool.Grant(1, nil)
		if err == nil {
			replaceLast(first, pages[0])
			r.pool.Return(pages)
		}
	}
}

// overwrite copies one page of the tree over another, when all is over but for
// reading the tree.
func (p *planting) overwrite(r *rig) {
	if p.kind != OverwritePage || r.cache == nil || r.lost != nil {
		return
	}
	var ids []kv.PageID
	for v := range r.cache.Walk() {
		if !v.Tail {
			ids = append(ids, v.Pages...)
		}
	}
	if len(ids) < 2 || !p.due(OverwritePage, r.plans) {
		return
	}
	ticket, err := r.oracle.Submit(&engine.Batch{Seq: r.lastSeq + 1, Copies: []engine.PageCopy{
		{Src: ids[0], Dst: ids[1], Tokens: int32(r.info.PageTokens)},
	}})
	for err == nil {
		if _, err = ticket.Result(); err != engine.ErrPending || !r.clock.Step() {
			return
		}
		err = nil
	}
}

func replaceLast(row *engine.Row, id kv.PageID) {
	row.Pages = slices.Clone(row.Pages)
	row.Pages[len(row.Pages)-1] = id
}

// buggy is a backend that does something wrong.
type buggy struct {
	engine.Backend
	rig *rig
}

// Submit passes a spoiled copy on: the plan is the scheduler's.
func (b *buggy) Submit(batch *engine.Batch) (engine.Ticket, error) {
	r := b.rig
	c := *batch
	c.Rows = slices.Clone(batch.Rows)
	switch r.planting.kind {
	case DropCopies:
		c.Copies = nil
	case SwapPages:
		b.swapPages(c.Rows)
	case EarlyReuse:
		b.reuseEarly(c.Rows)
	case LoseMask:
		for i := range c.Rows {
			if c.Rows[i].Mask != nil && b.rig.planting.due(LoseMask, b.rig.plans) {
				c.Rows[i].Mask = nil
				break
			}
		}
	case StaleDeferred:
		b.feedStale(c.Rows)
	}
	ticket, err := b.Backend.Submit(&c)
	switch {
	case err != nil:
		return nil, err
	case r.planting.due(LoseResult, r.plans):
		return lost{}, nil
	case r.planting.due(MisCount, r.plans):
		return counting{ticket, engine.StepStats{GivenTokens: 1}}, nil
	case r.planting.kind == DropCopies:
		return counting{ticket, engine.StepStats{CopiedPages: len(batch.Copies)}}, nil
	}
	return ticket, nil
}

// swapPages exchanges the first two pages of a row that reads both.
func (b *buggy) swapPages(rows []engine.Row) {
	for i := range rows {
		row := &rows[i]
		if int(row.Start) >= 2*b.rig.info.PageTokens && b.rig.planting.due(SwapPages, b.rig.plans) {
			row.Pages = slices.Clone(row.Pages)
			row.Pages[0], row.Pages[1] = row.Pages[1], row.Pages[0]
			return
		}
	}
}

// reuseEarly gives a row that begins a page the first page of another row.
func (b *buggy) reuseEarly(rows []engine.Row) {
	pageTokens := b.rig.info.PageTokens
	for i := range rows {
		for j := range rows {
			w, victim := &rows[i], &rows[j]
			if i != j && int(w.Start)%pageTokens == 0 && victim.Start > 0 && w.Len() <= pageTokens &&
				!slices.Contains(w.Pages, victim.Pages[0]) && b.rig.planting.due(EarlyReuse, b.rig.plans) {
				replaceLast(w, victim.Pages[0])
				return
			}
		}
	}
}

// feedStale runs a deferred row on another token than the slot's last sample.
func (b *buggy) feedStale(rows []engine.Row) {
	for i := range rows {
		s := b.rig.rows[i].of
		if !rows[i].Deferred || s == nil || len(s.got) < 2 {
			continue
		}
		stale := s.got[len(s.got)-2]
		at := int(rows[i].Start) - len(s.of.req.Prompt)
		if at < len(s.want) && s.want[at] != stale && b.rig.planting.due(StaleDeferred, b.rig.plans) {
			rows[i].Deferred, rows[i].Tokens = false, []kv.Token{stale}
			return
		}
	}
}

// lost is a ticket that is never done.
type lost struct{}

func (lost) Done() <-chan struct{}           { return nil }
func (lost) Result() (*engine.Result, error) { return nil, engine.ErrPending }

// counting is a ticket whose result counts what was not done.
type counting struct {
	engine.Ticket
	more engine.StepStats
}

func (t counting) Result() (*engine.Result, error) {
	res, err := t.Ticket.Result()
	if err != nil {
		return nil, err
	}
	wrong := *res
	wrong.Stats.GivenTokens += t.more.GivenTokens
	wrong.Stats.CopiedPages += t.more.CopiedPages
	return &wrong, nil
}
