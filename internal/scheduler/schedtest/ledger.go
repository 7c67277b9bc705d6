package schedtest

import (
	"fmt"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/scheduler"
)

// ledger follows every page between pool and scheduler: a page is in one place at a time, the
// places add up to the pool, and plans only use pages that the scheduler has.
type ledger struct {
	blind
	r     *rig
	at    []place // place of each page
	count [len(placeNames)]int
}

func newLedger(r *rig) *ledger {
	l := &ledger{r: r, at: make([]place, r.info.NumPages)}
	l.count[inPool] = len(l.at)
	return l
}

func (*ledger) name() string { return "ledger" }

func (l *ledger) handed(pages []kv.PageID, from, to place) error {
	for _, id := range pages {
		if id < 0 || int(id) >= len(l.at) {
			return fmt.Errorf("page %d moves from %v to %v, but there are %d pages", id, from, to, len(l.at))
		}
		if l.at[id] != from {
			return fmt.Errorf("page %d moves from %v to %v, but is %v", id, from, to, l.at[id])
		}
		l.at[id] = to
		l.count[from]--
		l.count[to]++
	}
	return nil
}

func (l *ledger) planned(p *scheduler.Plan, rows []rowView) error {
	for i := range rows {
		for _, id := range rows[i].pages {
			if err := l.granted(id); err != nil {
				return fmt.Errorf("row %d of plan %d: %w", i, p.Batch.Seq, err)
			}
		}
	}
	for i, c := range p.Batch.Copies {
		for _, id := range []kv.PageID{c.Src, c.Dst} {
			if err := l.granted(id); err != nil {
				return fmt.Errorf("copy %d of plan %d: %w", i, p.Batch.Seq, err)
			}
		}
	}
	return nil
}

func (l *ledger) granted(id kv.PageID) error {
	if id < 0 || int(id) >= len(l.at) {
		return fmt.Errorf("page %d of %d is used", id, len(l.at))
	}
	if l.at[id] != inScheduler {
		return fmt.Errorf("page %d is used, but is %v", id, l.at[id])
	}
	return nil
}

func (l *ledger) settled() error {
	m := l.r.sched.Metrics()
	switch {
	case m.LeakedPages != 0:
		return fmt.Errorf("%d granted pages have no owner", m.LeakedPages)
	case m.IdlePages+m.HeldPages+m.CachedPages != l.count[inScheduler]:
		return fmt.Errorf("%d idle + %d held + %d cached pages, the scheduler was granted %d",
			m.IdlePages, m.HeldPages, m.CachedPages, l.count[inScheduler])
	case l.r.pool.FreePages() != l.count[inPool]:
		return fmt.Errorf("%d pages are free, want %d", l.r.pool.FreePages(), l.count[inPool])
	}
	if most := l.r.cfg.Tenant.MaxRunning; most > 0 {
		for _, t := range l.r.sched.Tenants() {
			if t.Running > most {
				return fmt.Errorf("tenant %q runs %d samples, want at most %d", t.Tenant, t.Running, most)
			}
		}
	}
	return l.r.sched.Check()
}

func (l *ledger) finished() error {
	if l.count[inPool] != len(l.at) || l.r.pool.FreePages() != len(l.at) {
		return fmt.Errorf("%d of %d pages were returned, %d are free", l.count[inPool], len(l.at), l.r.pool.FreePages())
	}
	if m := l.r.sched.Metrics(); m.CachedPages+m.HeldPages+m.IdlePages != 0 {
		return fmt.Errorf("the scheduler keeps %d cached, %d held and %d idle pages", m.CachedPages, m.HeldPages, m.IdlePages)
	}
	return l.r.pool.Check()
}
