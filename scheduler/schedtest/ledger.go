package schedtest

import (
	"slices"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/mempool/tiering"
	"github.com/coppice-llm/coppice/scheduler"
)

// ledger follows every page between pool and scheduler: a page is in one place at a time, the
// places add up to the pool, and plans only use pages that the scheduler has.
type ledger struct {
	watcher
	at    []place // place of each page
	count [len(placeNames)]int
}

func newLedger(r *rig) *ledger {
	l := &ledger{watcher: watcher{r, "ledger"}, at: make([]place, r.info.NumPages)}
	l.count[inPool] = len(l.at)
	return l
}

func (l *ledger) handed(pages []kv.PageID, from, to place) {
	if from == inScheduler && l.r.rival != nil && l.r.lost == nil && !l.r.closed {
		l.unused(pages)
	}
	for _, id := range pages {
		if id < 0 || int(id) >= len(l.at) {
			l.failf("page %d moves from %v to %v, but there are %d pages", id, from, to, len(l.at))
		}
		if l.at[id] != from {
			l.failf("page %d moves from %v to %v, but is %v", id, from, to, l.at[id])
		}
		l.at[id] = to
		l.count[from]--
		l.count[to]++
	}
}

// unused fails if a plan or a move in flight uses one of pages, which the scheduler gives to a pool
// from which others lease.
func (l *ledger) unused(pages []kv.PageID) {
	for _, id := range pages {
		for _, f := range l.r.flights {
			if slices.Contains(f.pages, id) {
				l.failf("page %d is given back while plan %d uses it", id, f.seq)
			}
		}
		for _, m := range l.r.lower.moves { // any order: it does not matter which one is reported
			if slices.Contains(m.Pages, id) && (m.copying || m.Kind == tiering.Read) {
				l.failf("page %d is given back while move %d uses it", id, m.ID)
			}
		}
	}
}

func (l *ledger) planned(p *scheduler.Plan, rows []rowView) {
	for i := range rows {
		for _, id := range rows[i].pages {
			l.granted(id, "row", i)
		}
	}
	for i, c := range p.Batch.Copies {
		for _, id := range []kv.PageID{c.Src, c.Dst} {
			l.granted(id, "copy", i)
		}
	}
}

// granted fails if a part of a plan, such as row 3, uses a page that the scheduler does not have.
func (l *ledger) granted(id kv.PageID, part string, index int) {
	if id < 0 || int(id) >= len(l.at) {
		l.failf("%s %d uses page %d of %d", part, index, id, len(l.at))
	}
	if l.at[id] != inScheduler {
		l.failf("%s %d uses page %d, but that is %v", part, index, id, l.at[id])
	}
}

func (l *ledger) settled() {
	m := l.r.sched.Metrics()
	switch {
	case m.LeakedPages != 0:
		l.failf("%d granted pages have no owner", m.LeakedPages)
	case m.IdlePages+m.HeldPages+m.CachedPages != l.count[inScheduler]:
		l.failf("%d idle + %d held + %d cached pages, the scheduler was granted %d",
			m.IdlePages, m.HeldPages, m.CachedPages, l.count[inScheduler])
	case l.r.pool.FreePages() != l.count[inPool]:
		l.failf("%d pages are free, want %d", l.r.pool.FreePages(), l.count[inPool])
	}
	if most := l.r.cfg.Tenant.MaxRunning; most > 0 {
		for _, t := range l.r.sched.Tenants() {
			if t.Running > most {
				l.failf("tenant %q runs %d samples, want at most %d", t.Tenant, t.Running, most)
			}
		}
	}
	l.ok(l.r.sched.Check())
}

func (l *ledger) finished() {
	if l.count[inPool] != len(l.at) || l.r.pool.FreePages() != len(l.at) {
		l.failf("%d of %d pages were returned, %d are free", l.count[inPool], len(l.at), l.r.pool.FreePages())
	}
	if m := l.r.sched.Metrics(); m.CachedPages+m.HeldPages+m.IdlePages != 0 {
		l.failf("the scheduler keeps %d cached, %d held and %d idle pages", m.CachedPages, m.HeldPages, m.IdlePages)
	}
	l.ok(l.r.pool.Check())
}
