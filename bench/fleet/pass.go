package fleet

import (
	"fmt"
	"time"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/router"
	"github.com/coppice-llm/coppice/router/kvindex"
)

// overlaps returns the number of leading blocks of a prompt that each worker has, by the index
// and, with Config.Predict, by the prediction. The result is valid until the next call.
func (p *play) overlaps(req *Request) []router.Overlap {
	p.found = p.index.Find(req.Locals, p.found[:0])
	if p.guess != nil {
		p.guess.Expire(p.clock.Now())
		p.guessed = p.guess.Find(req.Locals, p.guessed[:0])
		p.found = kvindex.MaxOverlaps(p.found, p.guessed)
	}
	p.laps = p.laps[:0]
	for _, o := range p.found {
		p.laps = append(p.laps, router.Overlap{Worker: o.Holder, Device: int(o.Blocks)})
	}
	return p.laps
}

// send gives request i to the worker that the router chose in d.
func (p *play) send(i int, d *router.Decision) {
	q, now := &p.asked[i], p.clock.Now()
	w := &p.workers[d.Worker.Worker-1]
	q.res, q.at = d.Reservation, w
	w.requests++
	q.overlap = min(d.Overlap.Blocks()*BlockTokens, len(q.req.Tokens))
	p.measures.result.PromisedTokens += q.overlap
	if p.guess != nil {
		p.fail(p.guess.Route(w.holder, kvindex.Run{Hashes: q.req.Hashes, Locals: q.req.Locals}, now))
	}
	p.fail(w.Submit(now, q.req))
	p.arm(w)
}

// arm schedules the end of the pass in progress of worker w, if there is one.
func (p *play) arm(w *station) {
	if at, ok := w.Wake(); ok && !w.armed {
		w.armed = true
		p.clock.At(at, w.wake)
	}
}

// pass ends the pass in progress of worker w and handles its report: events, tokens, endings. A
// pass may free capacity, so requests that wait at the router are tried again.
func (p *play) pass(w *station) {
	now := p.clock.Now()
	p.report.reset()
	if err := w.Pass(now, &p.report); err != nil {
		p.fail(err)
		return
	}
	w.computed += p.report.Computed
	p.measures.result.CachedTokens += p.report.Cached
	p.publish(w, p.report.Events)
	w.output += len(p.report.Tokens)
	for _, id := range p.report.Tokens {
		p.token(now, id)
	}
	for _, id := range p.report.Ended {
		p.end(now, id)
	}
	p.arm(w)
	if len(p.queued) > 0 {
		p.admit()
	}
}

// publish applies events of worker w to the index, after EventDelay. If the worker is restarted
// before that, they are lost.
func (p *play) publish(w *station, events []kv.Event) {
	if len(events) == 0 {
		return
	}
	if p.cfg.EventDelay == 0 {
		p.apply(w, events)
		return
	}
	events = cloned(events)
	life := w.life
	p.clock.At(p.clock.Now()+p.cfg.EventDelay, func() {
		if w.life == life {
			p.apply(w, events)
		}
	})
}

// restart replaces worker 0 by a new worker with an empty cache, and sends the requests that
// were running or waiting there again, from their beginning.
func (p *play) restart() {
	w := &p.workers[0]
	p.r.Leave(p.clock.Now(), w.id, nil)
	p.index.Clear(w.holder)
	if p.guess != nil {
		p.guess.RemoveWorker(w.holder.Worker)
	}
	var pool router.PoolID
	if p.buckets != nil {
		_, pools, err := p.cfg.stages(p.cfg.Workers)
		p.fail(err)
		pool = pools[0]
	}
	p.fail(p.open(0, pool))
	w.since, w.requests = p.next, 0
	for i := range p.next {
		q := &p.asked[i]
		if q.ended || q.at != w {
			continue
		}
		p.measures.result.PromptTokens -= len(q.req.Tokens)
		p.measures.result.PromisedTokens -= q.overlap
		p.free = append(p.free, q.req)
		q.at, q.req, q.got = nil, nil, 0
		p.arrive(i)
	}
}

// apply updates the index and the router's predictions by events of worker w.
func (p *play) apply(w *station, events []kv.Event) {
	for i := range events {
		switch events[i].Kind {
		case kv.Removed:
			p.r.Removed(w.id, events[i].Hashes)
		case kv.Cleared:
			p.r.Cleared(w.id)
		}
		if err := p.index.Apply(w.holder, events[i]); err != nil {
			p.fail(fmt.Errorf("fleet: event %d of worker %v: %w", i, w.id, err))
		}
	}
	if p.checked != nil {
		p.fail(p.checked(w))
	}
}

// token records an output token of request id at now. One token too many is an error. The router
// is told of the first token and of every progressEvery-th.
func (p *play) token(now time.Duration, id int) {
	q := &p.asked[id]
	if q.ended || q.got == p.trace.asks[id].answer.n {
		p.fail(fmt.Errorf("fleet: request %d got more than %d tokens", id, q.got))
		return
	}
	if q.got == 0 {
		if p.steady(id) {
			p.measures.ttft = append(p.measures.ttft, now-q.arrived)
		}
	} else {
		p.measures.gaps.add(now - q.last)
	}
	q.got++
	q.last = now
	if q.got == 1 || q.got%progressEvery == 0 {
		p.r.Progress(now, q.res, 0, q.got)
	}
}

// end records the ending of request id at the time now. A second ending of a request, and an
// ending before all its tokens, are errors.
func (p *play) end(now time.Duration, id int) {
	q := &p.asked[id]
	if q.ended || q.got != p.trace.asks[id].answer.n {
		p.fail(fmt.Errorf("fleet: request %d ended (before: %v) after %d of %d tokens", id, q.ended, q.got, p.trace.asks[id].answer.n))
		return
	}
	if !p.r.Release(now, q.res) {
		p.fail(fmt.Errorf("fleet: the reservation of request %d had ended before it", id))
	}
	q.ended = true
	p.ended++
	p.measures.ends = append(p.measures.ends, now)
	if p.steady(id) {
		p.measures.e2e = append(p.measures.e2e, now-q.arrived)
	}
	p.free = append(p.free, q.req)
	q.req = nil
	for _, i := range q.waiters {
		p.arrive(i)
	}
	q.waiters = nil
	if p.cfg.Clients > 0 {
		p.follow()
	}
}

// admit sends the requests that wait at the router, for as long as a worker can take one.
func (p *play) admit() {
	now := p.clock.Now()
	for p.err == nil {
		ticket, _, ok := p.r.Next(now)
		if !ok {
			return
		}
		i := p.queued[ticket]
		start := p.tick()
		d, err := p.r.Take(now, ticket, p.overlaps(p.asked[i].req))
		p.chose(start)
		if err != nil {
			p.fail(fmt.Errorf("fleet: waiting request %d: %w", i, err))
			return
		}
		delete(p.queued, ticket)
		p.send(i, &d)
	}
}

// reports passes the usage of all workers and the sizes of their prefix trees to the
// router, and schedules itself again after ReportEvery.
func (p *play) reports() {
	now := p.clock.Now()
	for i := range p.workers {
		w := &p.workers[i]
		u := w.Usage()
		p.fail(p.r.Report(now, w.id, router.Usage{UsedBlocks: u.UsedBlocks, Waiting: u.Waiting}))
		p.r.SetTree(w.id, p.index.Held(w.holder))
	}
	p.admit()
	p.clock.At(now+p.cfg.ReportEvery, p.reports)
}

// tick returns the time of Config.Clock, or the zero time if that is nil.
func (p *play) tick() time.Time {
	if p.cfg.Clock == nil {
		return time.Time{}
	}
	return p.cfg.Clock()
}

// chose records the wall time of a choice since start.
func (p *play) chose(start time.Time) {
	if p.cfg.Clock != nil {
		p.measures.choices = append(p.measures.choices, p.cfg.Clock().Sub(start))
	}
}
