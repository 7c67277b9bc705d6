package fleet

import (
	"fmt"
	"time"

	"github.com/coppice-llm/coppice/router"
	"github.com/coppice-llm/coppice/router/kvindex"
)

// overlaps returns the number of leading blocks of a prompt that each worker has, by the index of
// gateway g and, with Config.Predict, by the prediction. The result is valid until the next call.
func (p *play) overlaps(g *gate, req *Request) []router.Overlap {
	p.found = g.index.Find(req.Hashes, p.found[:0])
	if p.guess != nil {
		p.guess.Expire(p.clock.Now())
		p.guessed = p.guess.Find(req.Hashes, p.guessed[:0])
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
	p.share(p.gateOf(i))
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
	for _, g := range p.gates {
		if len(g.queued) > 0 {
			p.admit(g)
		}
	}
}

// restart replaces worker 0 by a new worker with an empty cache, and sends the requests that
// were running or waiting there again, from their beginning.
func (p *play) restart() {
	w := &p.workers[0]
	for _, g := range p.gates {
		g.r.Leave(p.clock.Now(), w.id, nil)
		g.index.Clear(w.holder)
	}
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
		g := p.gateOf(id)
		g.r.Progress(now, q.res, 0, q.got)
		p.share(g)
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
	g := p.gateOf(id)
	if !g.r.Release(now, q.res) {
		p.fail(fmt.Errorf("fleet: the reservation of request %d had ended before it", id))
	}
	p.share(g)
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

// reports passes the usage of all workers and the sizes of their prefix trees to the
// gateways, and schedules itself again after ReportEvery.
func (p *play) reports() {
	now := p.clock.Now()
	for i := range p.workers {
		w := &p.workers[i]
		u := w.Usage()
		for _, g := range p.gates {
			p.fail(g.r.Report(now, w.id, router.Usage{UsedBlocks: u.UsedBlocks, Waiting: u.Waiting}))
			g.r.SetTree(w.id, g.index.Held(w.holder))
		}
	}
	for _, g := range p.gates {
		p.admit(g)
	}
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
