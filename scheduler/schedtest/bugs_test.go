package schedtest

import (
	"errors"
	"slices"
	"time"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/engine/sim"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/mempool/tiering"
	"github.com/coppice-llm/coppice/radixcache"
	"github.com/coppice-llm/coppice/scheduler"
)

// planting is a bug of one kind. Most bugs happen once, after the world has run for some plans.
type planting struct {
	o      Options
	kind   Plant
	done   bool
	latest []kv.PageID // by the latest grant
}

// planted returns o with a bug.
func (o Options) planted(kind Plant) Options {
	o.Fair, o.Faults = o.Fair || kind.fair(), o.Faults || kind == KeepFailed || kind == KeepBelow
	o.plant = func() bug { return &planting{o: o, kind: kind} }
	return o
}

// due reports whether the bug kind must happen now. It returns true once, and only for the
// planted bug.
func (p *planting) due(kind Plant, r *rig) bool {
	if p.kind != kind || p.done || r.plans < 20 {
		return false
	}
	p.done = true
	return true
}

// setup makes worlds that give the bug an opportunity.
func (p *planting) setup(w *setup) {
	w.restarts, w.cfg.SharePages, w.cfg.Speculate = false, 0, scheduler.SpeculateOff
	if p.kind.drafts() {
		w.speculate(newStream(p.o.Seed, "drafts of a plant"))
		w.cfg.DisableCache = w.cfg.DisableCache && p.kind != KeepRefused && p.kind != ForeignDraft
		w.unexpected = p.kind == ForeignDraft
	}
	switch p.kind {
	case EarlyReturn:
		w.share()
	case ForgiveDebts, KeepCredit, ChargeCached:
		w.cfg.Tiers, w.speedup = nil, 1
	case Starve:
		w.starve()
	case KeepFailed:
		w.cfg.DisableCache = false
		w.failRows(p.o, 20)
	case ForgetMove, BelieveMove, LoseMove, LoseCancel, StalePage, ChildFirst, KeepParked, ParkEarly:
		w.shuttle(p.kind == BelieveMove)
		if p.kind == LoseCancel {
			w.aborts, w.store, w.ending = 1, 60*w.stepTime, drains
		}
	case Favour:
		w.starve()
		w.cfg.Policy, w.cfg.Quantum = scheduler.DLPM, 1
	case Eager:
		w.cfg.Policy, w.cfg.PreemptThreshold = scheduler.Priority, 4
	case PreemptAgain:
		w.contend()
	case AllPublic:
		w.cfg.DisableCache = false
	case KeepReleased:
		w.cfg.DisableCache, w.cfg.Quotas, w.cfg.MinQuotas, w.cfg.Eviction = false, nil, nil, radixcache.Session
	case KeepOver:
		w.cfg.DisableCache, w.cfg.Quotas = false, map[kv.Namespace]int{{}: w.device.PageTokens}
	case KeepBelow:
		w.shuttle(false)
		w.cfg.Tiers.Mode = tiering.Through
		w.failRows(p.o, 20)
	case NoFloor:
		w.crowd()
	case NoDisplacing, LoseDisplaced:
		w.crowd()
		w.cfg.Displace, w.cfg.MaxQueued, w.cfg.MaxRunning, w.cfg.Tenant.MaxQueued = true, 3, 2, 0
	}
}

func (p *planting) load(l *load) {
	switch p.kind {
	case Starve:
		l.hot, l.many = true, false
	case AllPublic, ForeignDraft:
		l.salts = []kv.Namespace{{}, {Salt: "a"}, {Salt: "b"}}
	case KeepReleased:
		l.sessions.on = true
	case Favour:
		l.hot, l.tenants = true, l.tenants[:cap(l.tenants)]
	}
	if p.kind == LateMask {
		l.shapes = newShapes(p.o.Seed, newVocabulary(l.w.device.Vocab))
		return
	}
	if p.kind != LoseMask && p.kind != StaleMask {
		l.shapes = nil
	}
}

// config changes cfg for the bugs that are a wrong configuration.
func (p *planting) config(cfg scheduler.Config, info *engine.Info) scheduler.Config {
	switch p.kind {
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
	case NoDisplacing:
		cfg.Displace = false
	}
	return cfg
}

func (p *planting) begin(r *rig) {
	r.device = &buggy{Backend: r.oracle, rig: r, planting: p}
	r.sched.Plant(faults[p.kind])
}

func (p *planting) arrive(w *world) {
	if w.second && p.due(HiddenDraw, w.rig) {
		w.load.rng.Uint64()
	}
}

func (p *planting) deaf(r *rig) bool { return p.due(DeafToAbort, r) }

// plan changes the plan x as the planted bug of the scheduler would, if that is due.
func (p *planting) plan(r *rig, x *scheduler.Plan) {
	if len(x.Batch.After) > 0 && p.due(ForgetMove, r) {
		x.Batch.After = x.Batch.After[:0]
	}
	p.moves(r, x)
	if len(r.flights) > 0 && len(r.flights[0].plan.Batch.Rows) > 0 && p.due(RewriteRow, r) {
		r.flights[0].plan.Batch.Rows[0].Start++
	}
	if len(r.flights) > 0 && len(r.flights[0].pages) > 0 && p.due(EarlyReturn, r) {
		r.hand(r.flights[0].pages[:1], inScheduler, onTheWayBack)
	}
	if len(x.Batch.Rows) == 0 {
		return
	}
	first := &x.Batch.Rows[0]
	switch {
	case len(r.rows) > 1 && p.due(TwoWriters, r):
		replaceLast(&x.Batch, &r.rows[1], r.rows[0].pages[len(r.rows[0].pages)-1])
	case !first.Deferred && p.due(WrongStart, r):
		first.Start++
	case !first.Deferred && first.Sample && p.due(SkipSampling, r):
		first.Sample = false
	case r.pool.FreePages() > 0 && p.due(ForeignPage, r):
		pages, err := r.pool.Grant(1, nil)
		if err == nil {
			replaceLast(&x.Batch, &r.rows[0], pages[0])
			r.pool.Return(pages)
		}
	}
}

// moves makes a cancellation in x ineffective, or swaps the writes of a parent and its child, if
// one of these bugs is due.
func (p *planting) moves(r *rig, x *scheduler.Plan) {
	for i := range x.Moves {
		m := &x.Moves[i]
		switch {
		case m.Kind == tiering.Cancel && p.due(LoseCancel, r):
			m.ID = 0 // no move has ID 0
			return
		case m.Kind == tiering.Write && i > 0 && m.Extent.Parent == x.Moves[i-1].Extent.Key && p.due(ChildFirst, r):
			x.Moves[i-1], x.Moves[i] = x.Moves[i], x.Moves[i-1]
			return
		}
	}
}

// end copies one page of the tree over another, if that bug is due.
func (p *planting) end(r *rig) {
	if p.kind != OverwritePage || r.cache == nil || r.lost != nil {
		return
	}
	var ids []kv.PageID
	for v := range r.cache.Walk() {
		if !v.Tail {
			ids = append(ids, v.Pages...)
		}
	}
	if len(ids) < 2 || !p.due(OverwritePage, r) {
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

// outputs returns out as the callers get it: changed by the planted bug between scheduler and
// callers, if that is due.
func (p *planting) outputs(r *rig, out []scheduler.Output) []scheduler.Output {
	for i := range out {
		o := &out[i]
		over := o.Ending.Reason != scheduler.NotEnded
		switch {
		case !over && o.Sampled && p.due(LoseToken, r):
			return slices.Delete(slices.Clone(out), i, i+1)
		case !over && o.Sampled && p.due(DoubleToken, r):
			return slices.Insert(slices.Clone(out), i, *o)
		case over && errors.Is(o.Ending.Err, scheduler.ErrDisplaced) && p.due(LoseDisplaced, r):
			return slices.Delete(slices.Clone(out), i, i+1)
		case over && p.due(LoseEnding, r):
			return slices.Delete(slices.Clone(out), i, i+1)
		case o.Sampled && p.due(WrongToken, r):
			o.Token = (o.Token + 1) % kv.Token(r.info.Vocab)
		case over && p.due(DoubleEnding, r):
			return slices.Insert(slices.Clone(out), i, *o)
		case over && p.due(ForgedBill, r):
			o.Ending.OutputTokens++
		}
	}
	return out
}

func (p *planting) events(r *rig, events []kv.Event) []kv.Event {
	switch {
	case p.due(DropEvent, r):
		return events[1:]
	case p.due(DoubleEvent, r):
		return append(events, events[len(events)-1])
	}
	return events
}

func (p *planting) asked(r *rig, pages int) int {
	if p.due(LoseGrant, r) {
		return 0
	}
	return pages
}

func (p *planting) granted(r *rig, pages []kv.PageID) []kv.PageID {
	if len(p.latest) > 0 && p.due(GrantTwice, r) {
		pages = append(pages, p.latest[0])
	}
	p.latest = slices.Clone(pages)
	return pages
}

func (p *planting) returned(r *rig, pages []kv.PageID) []kv.PageID {
	if p.due(LosePage, r) {
		return pages[1:]
	}
	return pages
}

// read returns a record with other pages than rec, if the bug StalePage is due and a store has a
// record that shares no page with rec.
func (p *planting) read(l *lower, c *carried, rec *record) *record {
	if c.Kind != tiering.Read || p.kind != StalePage {
		return rec
	}
	for _, tier := range l.stores {
		for _, k := range sortedKeys(tier) {
			if o := tier[k]; l.layout.SharedPages(&o.extent, &rec.extent) == 0 && p.due(StalePage, l.r) {
				pages := slices.Clone(o.pages)
				for len(pages) < len(rec.pages) {
					pages = append(pages, pages[0])
				}
				return &record{extent: o.extent, pages: pages}
			}
		}
	}
	return rec
}

func (p *planting) moved(l *lower, c *carried, err error) (result error, sent bool) {
	if c.Kind == tiering.Read && err != nil && p.due(BelieveMove, l.r) {
		err = nil
	}
	return err, c.Kind != tiering.Read || !p.due(LoseMove, l.r)
}

// result returns res, or with the bug KeepFailed a copy in which the errors of failed rows wrap
// engine.ErrNoToken too, so that the scheduler takes their KV for sound.
func (p *planting) result(res *engine.Result) *engine.Result {
	if p.kind != KeepFailed {
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
	rig      *rig
	planting *planting
}

// Submit passes a spoiled copy of the batch on, since the plan belongs to the scheduler.
func (b *buggy) Submit(batch *engine.Batch) (engine.Ticket, error) {
	p, r := b.planting, b.rig
	c := *batch
	c.Rows, c.Swaps = slices.Clone(batch.Rows), slices.Clone(batch.Swaps)
	switch p.kind {
	case DropCopies:
		c.Copies = nil
	case SwapPages:
		b.swapPages(&c)
	case EarlyReuse:
		b.reuseEarly(&c)
	case LoseMask:
		for i := range c.Rows {
			if c.Rows[i].Mask != 0 && b.planting.due(LoseMask, b.rig) {
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
	case p.due(LoseResult, r):
		return lost{}, nil
	case p.due(MisCount, r):
		return counting{ticket, engine.StepStats{GivenTokens: 1}}, nil
	case p.kind == DropCopies:
		return counting{ticket, engine.StepStats{CopiedPages: len(batch.Copies)}}, nil
	}
	return ticket, nil
}

// swapPages swaps the first two pages of a row that reads both.
func (b *buggy) swapPages(c *engine.Batch) {
	for _, v := range b.rig.rows {
		if int(v.row.Start) >= 2*b.rig.info.PageTokens && b.planting.due(SwapPages, b.rig) {
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
				!slices.Contains(w.pages, victim.pages[0]) && b.planting.due(EarlyReuse, b.rig) {
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
		if at < len(s.want) && s.want[at] != stale && b.planting.due(StaleDeferred, b.rig) {
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

// starve makes the world in which a policy without a bound lets one request, or one tenant,
// wait longest: one slot, and many requests that share cached prefixes.
func (w *setup) starve() {
	w.cfg.Policy, w.cfg.DisableCache = scheduler.LPM, false
	w.cfg.MaxRunning, w.cfg.MaxBypass, w.cfg.MaxQueued, w.cfg.MaxInflight = 1, 1, 24, 1
	w.cfg.OldestEvery, w.cfg.Aging, w.cfg.Tenant.MaxRunning, w.cfg.Tenant.MaxQueued = 2, 1<<20, 0, 0
	w.device.Pages = 10 * kv.CeilPages(w.largest, w.device.PageTokens)
	w.arrivals, w.group, w.gap, w.aborts = closedLoop, 20, 0, 0
	w.cfg.StepTokens = 512
}

// crowd makes a world with many requests, in which decoding uses nearly all of a step.
func (w *setup) crowd() {
	w.cfg.StepTokens, w.cfg.MaxRunning, w.cfg.AttentionTokens = 8, 8, -1
	w.device.Pages = 10 * kv.CeilPages(w.largest, w.device.PageTokens)
	w.arrivals, w.group, w.gap, w.aborts = closedLoop, 20, 0, 0
}

// contend makes a world in which priorities preempt often, and a preempted request needs several
// steps until it samples again.
func (w *setup) contend() {
	w.cfg.Policy, w.cfg.PreemptThreshold, w.cfg.Tenant = scheduler.Priority, 1, scheduler.TenantConfig{}
	w.cfg.DisableCache, w.cfg.Tiers, w.speedup = true, nil, 1
	w.cfg.StepTokens, w.cfg.MaxRunning, w.cfg.MaxQueued, w.cfg.AttentionTokens = 4, 2, 24, -1
	w.arrivals, w.group, w.gap, w.aborts = closedLoop, 6, w.stepTime, 0
}

// shuttle makes a world in which pages move all the time, slowly. If failing is true, every other
// copy of a page between tiers fails.
func (w *setup) shuttle(failing bool) {
	w.cfg.DisableCache = false
	if w.profile == "" { // a step takes as long as thousands of usual ones
		w.profile, w.stepTime, w.gap = "h200", 5*time.Millisecond, w.gap*5000
		w.device.Profile, _ = sim.ProfileByName(w.profile)
	}
	w.device.Profile.Device.PCIeLat = 0.004
	w.cfg.Tenant = scheduler.TenantConfig{}
	w.cfg.Tiers = hostTier(6*w.device.Pages, w.device.PageTokens)
	w.cfg.Tiers.Tiers[kv.TierHost].MaxMoves = 64
	w.store, w.arrivals, w.group = 4*w.stepTime, closedLoop, 8
	w.device.Pages = max(w.device.Pages, 2*kv.CeilPages(w.largest, w.device.PageTokens))
	fails := false
	w.device.Faults.Move = func(engine.MoveID) error {
		if fails = !fails; fails && failing {
			return errMove
		}
		return nil
	}
}
