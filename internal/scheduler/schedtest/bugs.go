package schedtest

import (
	"errors"
	"slices"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/mempool/tiering"
	"github.com/coppice-llm/coppice/scheduler"
)

// spoilConfig returns the configuration for the scheduler under test: cfg, changed for the
// bugs that are a wrong configuration. The checkers keep cfg.
func spoilConfig(cfg scheduler.Config, plant Plant, info engine.Info) scheduler.Config {
	switch plant {
	case OverBudget:
		cfg.StepTokens = min(2*cfg.StepTokens, info.MaxTokens)
	case LongQueue:
		cfg.MaxQueued *= 2
	case Favour:
		cfg.Quantum = 1 << 20
	case Starve:
		cfg.OldestEvery = 1 << 30
	case Eager:
		cfg.PreemptThreshold = 1
	case NoFloor:
		cfg.PromptFloor = -1
	case TimidDoor:
		cfg.Displace = false
	}
	return cfg
}

// spoilPlan changes the plan p as the planted bug of the scheduler would, if that is due.
func spoilPlan(r *rig, p *scheduler.Plan) {
	if len(p.Batch.After) > 0 && r.planting.due(ForgetMove, r.plans) {
		p.Batch.After = p.Batch.After[:0]
	}
	spoilMoves(r, p)
	if len(p.Batch.Rows) == 0 {
		return
	}
	first := &p.Batch.Rows[0]
	switch {
	case len(r.rows) > 1 && r.planting.due(TwoWriters, r.plans):
		replaceLast(&p.Batch, &r.rows[1], r.rows[0].pages[len(r.rows[0].pages)-1])
	case !first.Deferred && r.planting.due(WrongStart, r.plans):
		first.Start++
	case !first.Deferred && first.Sample && r.planting.due(SkipSampling, r.plans):
		first.Sample = false
	case r.pool.FreePages() > 0 && r.planting.due(ForeignPage, r.plans):
		pages, err := r.pool.Grant(1, nil)
		if err == nil {
			replaceLast(&p.Batch, &r.rows[0], pages[0])
			r.pool.Return(pages)
		}
	}
}

// spoilMoves makes a cancellation in p ineffective, or swaps the writes of a parent and its
// child, if one of these bugs is due.
func spoilMoves(r *rig, p *scheduler.Plan) {
	for i := range p.Moves {
		m := &p.Moves[i]
		switch {
		case m.Kind == tiering.Cancel && r.planting.due(LoseCancel, r.plans):
			m.ID = 0 // no move has ID 0
			return
		case m.Kind == tiering.Write && i > 0 && m.Extent.Parent == p.Moves[i-1].Extent.Key && r.planting.due(ChildFirst, r.plans):
			p.Moves[i-1], p.Moves[i] = p.Moves[i], p.Moves[i-1]
			return
		}
	}
}

// overwrite copies one page of the tree over another, if that bug is due. It runs before
// the contents of the tree's pages are checked.
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

// keepFailed returns res, or with the bug KeepFailed a copy in which the errors of failed
// rows wrap engine.ErrNoToken too, so that the scheduler takes their KV for sound.
func keepFailed(r *rig, res *engine.Result) *engine.Result {
	if r.planting.kind != KeepFailed {
		return res
	}
	kept := *res
	kept.Out = slices.Clone(res.Out)
	for i := range kept.Out {
		if err := kept.Out[i].Err; err != nil {
			kept.Out[i].Err = errors.Join(err, engine.ErrNoToken)
		}
	}
	return &kept
}

func replaceLast(b *engine.Batch, row *rowView, id kv.PageID) {
	b.Swaps = append(b.Swaps, engine.PageSwap{Slot: row.row.Slot, At: int32(len(row.pages) - 1), Page: id})
}

// buggy is a backend with a planted bug.
type buggy struct {
	engine.Backend
	rig *rig
}

// Submit passes a spoiled copy of the batch on, since the plan belongs to the scheduler.
func (b *buggy) Submit(batch *engine.Batch) (engine.Ticket, error) {
	r := b.rig
	c := *batch
	c.Rows, c.Swaps = slices.Clone(batch.Rows), slices.Clone(batch.Swaps)
	switch r.planting.kind {
	case DropCopies:
		c.Copies = nil
	case SwapPages:
		b.swapPages(&c)
	case EarlyReuse:
		b.reuseEarly(&c)
	case LoseMask:
		for i := range c.Rows {
			if c.Rows[i].Mask != 0 && b.rig.planting.due(LoseMask, b.rig.plans) {
				c.Rows[i].Mask = 0
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

// swapPages swaps the first two pages of a row that reads both.
func (b *buggy) swapPages(c *engine.Batch) {
	for _, v := range b.rig.rows {
		if int(v.row.Start) >= 2*b.rig.info.PageTokens && b.rig.planting.due(SwapPages, b.rig.plans) {
			c.Swaps = append(c.Swaps, engine.PageSwap{Slot: v.row.Slot, At: 0, Page: v.pages[1]}, engine.PageSwap{Slot: v.row.Slot, At: 1, Page: v.pages[0]})
			return
		}
	}
}

// reuseEarly gives a row that begins a page the first page of another row.
func (b *buggy) reuseEarly(c *engine.Batch) {
	pageTokens := b.rig.info.PageTokens
	for i := range b.rig.rows {
		for j := range b.rig.rows {
			w, victim := &b.rig.rows[i], &b.rig.rows[j]
			if i != j && int(w.row.Start)%pageTokens == 0 && victim.row.Start > 0 && w.row.Len() <= pageTokens &&
				!slices.Contains(w.pages, victim.pages[0]) && b.rig.planting.due(EarlyReuse, b.rig.plans) {
				replaceLast(c, w, victim.pages[0])
				return
			}
		}
	}
}

// feedStale gives a deferred row another token than the slot's last sample.
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

// lost is a ticket that never completes.
type lost struct{}

func (lost) Done() <-chan struct{}           { return nil }
func (lost) Result() (*engine.Result, error) { return nil, engine.ErrPending }

// counting is a ticket whose stats count work that was not done.
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
