package actors

import (
	"context"
	"log/slog"
	"maps"
	"slices"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/scheduler"
)

// schedulerActor drives a scheduler.Scheduler: each message becomes an input, and after each
// one the actor sends on whatever outputs the scheduler has.
type schedulerActor struct {
	sys     *System
	core    *scheduler.Scheduler
	streams map[scheduler.RequestID]*Stream // open at the scheduler
	ran     engine.StepStats                // sum over all steps
	out     []scheduler.Output              // scratch
	asked   bool                            // a want is unanswered
	offered bool                            // the pool has made an offer that is unanswered
	broken  bool                            // the device is lost: plan no more steps
	alarm   alarm                           // rings at the next time limit
	last    *flush                          // the flush in progress, if any
	parks   parking
}

func newSchedulerActor(s *System, core *scheduler.Scheduler) *schedulerActor {
	a := &schedulerActor{sys: s, core: core, streams: make(map[scheduler.RequestID]*Stream)}
	a.alarm.ring = func() { s.scheduler.tell(&tick{}) }
	return a
}

func (a *schedulerActor) receive(self *process, message any) {
	a.out = a.out[:0]
	switch m := message.(type) {
	case *submit:
		a.submit(m)
	case *abort:
		a.out = a.core.Abort(a.sys.now(), m.id, m.err, a.out)
	case *stepDone:
		a.stepDone(m)
	case *granted:
		a.asked = false
		a.core.Grant(m.pages, m.poolFree)
	case *found:
		a.core.Found(m.tier, m.extents)
	case *poolNews:
		a.poolNews(m)
	case *moved:
		a.moved(m)
	case *flush:
		a.flush(m)
	case *tick:
		a.alarm.rang()
	case *look:
		m.at(a)
	case *shutdown:
		a.shutdown(self)
		return
	default:
		unknown(m)
	}
	a.out = a.core.Expire(a.sys.now(), a.out)
	a.deliver()
	a.pump()
	a.flushed()
	a.unparked()
	a.wake()
}

// submit hands a request to the core, or ends it if the core refuses it, its caller has aborted
// it, or the system ends: after core.Flush no request may be added.
func (a *schedulerActor) submit(m *submit) {
	a.streams[m.stream.id] = m.stream
	if err := a.sys.Err(); err != nil {
		a.refuse(m.stream, scheduler.Ending{Reason: scheduler.Failed, Err: err})
		return
	}
	if gone := m.stream.gone.Load(); gone != nil {
		a.refuse(m.stream, scheduler.Ending{Reason: scheduler.Abort, Err: *gone})
		return
	}
	var err error
	if a.out, err = a.core.AddOrDisplace(a.sys.now(), m.req, a.out); err != nil {
		a.refuse(m.stream, scheduler.Ending{Reason: scheduler.Failed, Err: err})
	}
}

func (a *schedulerActor) refuse(stream *Stream, e scheduler.Ending) {
	last := len(stream.samples) - 1
	for i := range stream.samples {
		a.out = append(a.out, scheduler.Output{Request: stream.id, Sample: i, Final: i == last, Ending: e})
	}
}

func (a *schedulerActor) stepDone(m *stepDone) {
	if a.broken { // for the plans in flight together with the one that failed
		return
	}
	if m.err != nil {
		a.broken = true
		a.sys.fail(m.err)
		return
	}
	a.count(&m.result.Stats)
	a.out = a.core.Complete(a.sys.now(), m.plan, m.result, a.out)
}

func (a *schedulerActor) count(st *engine.StepStats) {
	a.ran.GivenTokens += st.GivenTokens
	a.ran.DeferredTokens += st.DeferredTokens
	a.ran.KVTokensRead += st.KVTokensRead
	a.ran.Samples += st.Samples
	a.ran.Drafted += st.Drafted
	a.ran.Confirmed += st.Confirmed
	a.ran.CopiedPages += st.CopiedPages
	a.ran.GraphFailures += st.GraphFailures
	a.ran.MemoryFailures += st.MemoryFailures
	a.ran.Nanos += st.Nanos
}

// poolNews passes a recall and an offer of the pool on to the core. Other schedulers on the
// pool have caused them.
func (a *schedulerActor) poolNews(m *poolNews) {
	a.core.Recall(m.recall)
	if m.offer > 0 {
		a.offered = true
		a.core.Offer(m.offer)
	}
}

// moved reports ended moves to the core.
func (a *schedulerActor) moved(m *moved) {
	now := a.sys.now()
	for i := range m.ended {
		e := &m.ended[i]
		if e.Copied {
			a.core.Copied(now, e.ID)
			continue
		}
		if e.Err != nil {
			a.sys.cfg.Log.Debug("move failed", "move", uint64(e.ID), "error", e.Err)
		}
		if len(e.Gone) > 0 {
			a.core.Gone(e.GoneFrom, e.Gone)
		}
		a.core.Moved(now, e.ID, e.Err, e.Took)
	}
}

// flush aborts the open requests, whose callers already have their endings, and
// begins the last writes to the tiers.
func (a *schedulerActor) flush(m *flush) {
	now := a.sys.now()
	for _, id := range slices.Sorted(maps.Keys(a.streams)) {
		a.out = a.core.Abort(now, id, ErrClosed, a.out)
	}
	m.begun, m.before = now, a.core.Metrics().Tiers
	a.last = m
	a.core.Flush(now, m.until)
	a.alarm.wakeAt(now, m.until)
}

// shutdown ends the open requests, returns every page and stores the final figures. The engine
// has stopped by now.
func (a *schedulerActor) shutdown(self *process) {
	a.out = a.core.Fail(a.sys.now(), a.sys.cause, a.out)
	a.deliver()
	final := a.stats()
	a.sys.pool.tell(&give{a.core.Drain(nil), a.asked})
	a.announce()
	a.sys.final.Store(&final)
	self.quit()
}

// deliver sends the outputs of the current message to the deliverer, as one message.
func (a *schedulerActor) deliver() {
	if len(a.out) == 0 {
		return
	}
	items := make([]delivery, len(a.out))
	for i, o := range a.out {
		items[i] = delivery{a.streams[o.Request], o}
		if o.Final {
			delete(a.streams, o.Request)
		}
	}
	a.sys.deliverer.tell(&deliver{items})
}

// pump lets the core plan as many steps ahead as it may, and passes on its page requests, page
// returns and events.
func (a *schedulerActor) pump() {
	if a.broken {
		return
	}
	back, wait := a.core.Return(nil)
	if len(back) > 0 {
		a.sys.pool.tell(&give{pages: back})
	}
	now := a.sys.now()
	for !wait {
		plan := a.core.Next(now)
		if plan == nil {
			break
		}
		if a.sys.cfg.Log.Enabled(context.Background(), slog.LevelDebug) { // else the arguments would be allocated in each step
			a.sys.cfg.Log.Debug("step", "step", plan.Batch.Seq, "rows", len(plan.Batch.Rows), "tokens", plan.Tokens())
		}
		for _, id := range plan.Begun() { // before the step runs: a proxy must not retry a request that has begun, as it may be what ends the device
			a.streams[id].begin()
		}
		a.sys.engine.tell(&step{plan})
	}
	if n := a.core.Want(); n > 0 {
		a.asked, a.offered = true, false
		a.sys.pool.tell(&want{n})
	} else if a.offered && !a.asked {
		a.offered = false
		a.sys.pool.tell(&decline{})
	}
	if pages := a.core.Surplus(nil); len(pages) > 0 {
		a.sys.pool.tell(&give{pages: pages})
	}
	a.announce()
}

// flushed logs a finished flush and answers it.
func (a *schedulerActor) flushed() {
	if a.last == nil || !a.broken && a.core.Flushing() {
		return
	}
	for t, m := range a.core.Metrics().Tiers {
		before := &a.last.before[t]
		if n, lost := m.Writes-before.Writes, m.Lost-before.Lost; t >= int(kv.TierDisk) && n+lost > 0 {
			a.sys.cfg.Log.Info("KV written at shutdown", "tier", kv.Tier(t).String(), "extents", n,
				"bytes", m.WriteBytes-before.WriteBytes, "lost", lost, "took", a.sys.now()-a.last.begun)
		}
	}
	close(a.last.done)
	a.last = nil
}

// wake sets the alarm for the next time limit, including those of fetches that pump began.
func (a *schedulerActor) wake() {
	if at, some := a.core.NextExpiry(); some {
		a.alarm.wakeAt(a.sys.now(), at)
	}
}

// release stops the timer, however the actor ended.
func (a *schedulerActor) release() { a.alarm.stop() }
