package bench

import (
	"context"
	"fmt"
	"time"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/engine/sim"
	"github.com/coppice-llm/coppice/scheduler"
)

// servingPlay drives a scheduler in virtual time. There is an event for each arrival
// and each finished step; after each event it plans until MaxInflight plans are in
// flight.
type servingPlay struct {
	cfg     ServingConfig
	trace   *servingTrace
	clock   *sim.Clock
	backend *sim.Backend
	s       *scheduler.Scheduler
	fair    *fairness

	asked    []asked // by request
	next     int     // closed loop: the next request to send
	inflight int     // plans
	out      []scheduler.Output
	err      error // the first one; it ends the run

	result   ServingResult
	computed int             // prompt tokens that the backend computed
	gaps     []time.Duration // between tokens, of all requests
}

// asked is the state of a request.
type asked struct {
	arrived, last, first time.Duration // virtual times of arrival, latest and first token
	got                  int           // tokens
	ended                bool
	waiters              []int // requests that arrive when this one ends
}

// newServingPlay opens the device and grants its whole pool to a new scheduler.
func newServingPlay(cfg ServingConfig, trace *servingTrace) (*servingPlay, error) {
	p := &servingPlay{
		cfg: cfg, trace: trace, clock: sim.NewClock(), fair: newFairness(trace.tenants),
		asked: make([]asked, len(trace.asks)),
	}
	var err error
	if p.backend, err = sim.Open(cfg.backend(p.clock)); err != nil {
		return nil, err
	}
	if p.s, err = NewScheduler(cfg.Scheduler, p.backend.Info()); err != nil {
		return nil, err
	}
	p.result.ends = make([]time.Duration, len(p.asked))
	return p, nil
}

// run plays until every request has ended, or until ctx ends. It is an error if no event is left while
// requests are open.
func (p *servingPlay) run(ctx context.Context) error {
	if p.cfg.Clients > 0 {
		p.clock.At(0, func() {
			for range p.cfg.Clients {
				p.arriveNext()
			}
			p.plan()
		})
	} else {
		for i, a := range p.trace.asks {
			at := time.Duration(float64(a.at) / p.cfg.Rate * (float64(time.Second) / gapUnit))
			p.clock.At(at, func() {
				p.arrive(i)
				p.plan()
			})
		}
	}
	for p.err == nil && p.clock.Step() {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	if p.err == nil && p.result.ended != len(p.asked) {
		p.err = fmt.Errorf("%d of %d requests ended, %d are open and nothing moves", p.result.ended, len(p.asked), p.s.Open())
	}
	return p.err
}

// arriveNext sends the next request of the closed loop, if one is left.
func (p *servingPlay) arriveNext() {
	if p.next < len(p.trace.asks) {
		p.next++
		p.arrive(p.next - 1)
	}
}

// arrive adds request i to the scheduler, or postpones it until the request that it
// continues has ended.
func (p *servingPlay) arrive(i int) {
	a := p.trace.asks[i]
	if a.after != nil {
		if before := &p.asked[a.after.index]; !before.ended {
			before.waiters = append(before.waiters, i)
			return
		}
	}
	now := p.clock.Now()
	p.asked[i].arrived = now
	stop := a.answer[len(a.answer)-1:]
	err := p.s.Add(now, scheduler.Request{
		ID: scheduler.RequestID(i), Tenant: a.tenant, Prompt: a.prompt, MaxTokens: a.limit, StopTokens: stop,
	})
	if err != nil && p.err == nil {
		p.err = fmt.Errorf("request %d: %w", i, err)
	}
	p.fair.look(p.s.Tenants())
}

// plan submits plans until MaxInflight are in flight or there is nothing to plan.
func (p *servingPlay) plan() {
	now := p.clock.Now()
	for p.err == nil && p.inflight < p.s.Config().MaxInflight {
		plan := p.s.Next(now)
		if plan == nil {
			return
		}
		p.fair.look(p.s.Tenants())
		ticket, err := p.backend.Submit(&plan.Batch)
		if err != nil {
			p.err = err
			return
		}
		ready, _ := p.backend.ReadyAt(ticket)
		p.inflight++
		p.clock.At(ready, func() { p.land(plan, ticket) }) // the backend's own event of this time comes first
	}
}

// land completes plan, whose step has finished, with the result of ticket, and plans again.
func (p *servingPlay) land(plan *scheduler.Plan, ticket engine.Ticket) {
	now := p.clock.Now()
	result, err := ticket.Result()
	if err != nil {
		p.err = err
		return
	}
	p.inflight--
	p.computed += result.Stats.GivenTokens - result.Stats.Drafted
	p.out = p.s.Complete(now, plan, result, p.out[:0])
	for i := range p.out {
		p.take(now, &p.out[i])
	}
	p.fair.look(p.s.Tenants())
	p.plan()
}

// take handles one output, which arrives at the time now, as the caller of the request would: it
// checks and times the token, and records the ending.
func (p *servingPlay) take(now time.Duration, o *scheduler.Output) {
	i := int(o.Request)
	a, q := p.trace.asks[i], &p.asked[i]
	if o.Sampled {
		if q.got >= len(a.answer) || o.Token != a.answer[q.got] {
			p.err = fmt.Errorf("token %d of request %d is %d, the model would say something else: KV was mixed up", q.got, i, o.Token)
			return
		}
		if q.got == 0 {
			q.first = now
		} else {
			p.gaps = append(p.gaps, now-q.last)
		}
		q.got++
		q.last = now
	}
	e := &o.Ending
	if e.Reason == scheduler.NotEnded {
		return
	}
	if q.got != len(a.answer) {
		p.err = fmt.Errorf("request %d ended (%v, %v) after %d of %d tokens", i, e.Reason, e.Err, q.got, len(a.answer))
		return
	}
	q.ended = true
	r := &p.result
	r.ends[i] = now
	r.ended++
	r.PromptTokens += e.PromptTokens
	r.CachedTokens += e.CachedTokens
	r.OutputTokens += e.OutputTokens
	r.bound.uncached = max(r.bound.uncached, e.PromptTokens-e.CachedTokens)
	r.bound.output = max(r.bound.output, e.OutputTokens)
	for _, w := range q.waiters {
		p.arrive(w)
	}
	if p.cfg.Clients > 0 {
		p.arriveNext()
	}
}

// summarise computes the figures of the run, except WallSeconds.
func (p *servingPlay) summarise() ServingResult {
	r := p.result
	m := p.s.Metrics()
	r.Policy, r.Requests, r.ComputedTokens = p.s.Config().Policy.String(), len(p.asked), p.computed
	r.RecomputedTokens, r.Preemptions, r.Steps = int(m.RecomputedTokens), int(m.Preemptions), int(m.Steps)
	r.HitRate = float64(r.CachedTokens) / float64(r.PromptTokens)
	r.VirtualSeconds = p.clock.Now().Seconds()
	r.RequestsPerS = float64(r.Requests) / r.VirtualSeconds
	r.OutputPerS = float64(r.OutputTokens) / r.VirtualSeconds
	r.Jain, r.ContendedTokens = p.fair.jain(), int(p.fair.contended)
	r.ServedDifference, r.bound.running = p.fair.difference, p.fair.running
	byTenant := make(map[string][]time.Duration)
	var all []time.Duration
	for i := range p.asked {
		ttft, tenant := p.asked[i].first-p.asked[i].arrived, p.trace.asks[i].tenant
		all = append(all, ttft)
		byTenant[tenant] = append(byTenant[tenant], ttft)
	}
	r.TTFTp50, r.TTFTp99 = Percentile(all, 50), Percentile(all, 99)
	r.ITLp50, r.ITLp99 = Percentile(p.gaps, 50), Percentile(p.gaps, 99)
	for _, name := range p.trace.tenants {
		d := byTenant[name]
		r.Tenants = append(r.Tenants, TenantResult{Tenant: name, Requests: len(d), TTFTp50: Percentile(d, 50), TTFTp99: Percentile(d, 99)})
	}
	return r
}
