package scheduler

import (
	"fmt"
	"slices"
	"time"

	"github.com/coppice-llm/coppice/engine"
)

// Add accepts a request into the queue or refuses it with one of the errors of
// this package, wrapped with the figures. A refused request leaves no trace and
// gets no Output.
func (s *Scheduler) Add(now time.Duration, req Request) error {
	limit, err := s.admissible(&req)
	if err != nil {
		return err
	}
	if s.queue.size+req.Samples > s.cfg.MaxQueued {
		return s.queue.full()
	}
	s.accept(now, req, limit)
	return nil
}

// full is the error of a request that finds no place in the queue.
func (w *queue) full() error {
	return fmt.Errorf("%w: %d requests wait, at most %d may", ErrQueueFull, w.size, w.cfg.MaxQueued)
}

// admissible checks all about a request but whether the queue is full, and fills in
// Samples.
func (s *Scheduler) admissible(req *Request) (limit int, err error) {
	if limit, err = validate(&s.cfg, &s.info, req); err != nil {
		return 0, err
	}
	if _, dup := s.open[req.ID]; dup {
		return 0, fmt.Errorf("%w: ID %d is open already", ErrInvalid, req.ID)
	}
	req.Samples = max(req.Samples, 1)
	if req.Samples > s.cfg.MaxQueued {
		return 0, s.queue.full()
	}
	if most := s.cfg.tenantConfig(req.Tenant).MaxQueued; most > 0 {
		n := 0
		if t := s.accounts.known[req.Tenant]; t != nil {
			n = t.waiting
		}
		if n+req.Samples > most {
			return 0, fmt.Errorf("%w: %d of tenant %q wait, at most %d may", ErrTenantFull, n, req.Tenant, most)
		}
	}
	return limit, nil
}

// accept puts the samples of a request into the queue.
func (s *Scheduler) accept(now time.Duration, req Request, limit int) {
	req.Prompt = slices.Clone(req.Prompt) // what is the caller's may change
	req.StopTokens, req.Sampling.Bias = slices.Clone(req.StopTokens), slices.Clone(req.Sampling.Bias)
	req.AllowedTokens, req.Media = slices.Clone(req.AllowedTokens), slices.Clone(req.Media)
	g := &group{req: req, allowed: newAllowed(&s.info, &req)}
	if req.Format != nil {
		g.format = s.plans.masks.format(&req, &g.allowed)
	}
	s.open[req.ID] = g
	for i := range req.Samples {
		s.enter(now, g, i, limit)
	}
	s.metrics.Requests++
	s.verify()
}

// enter makes sample i of a request and puts it into the queue.
func (s *Scheduler) enter(now time.Duration, g *group, i, limit int) {
	q := &sequence{
		identity: identity{
			req: &g.req, group: g, sample: i, arrival: s.arrived, born: s.work,
			tenant: s.accounts.find(now, g.req.Tenant), class: s.classes.of(&g.req),
		},
		tokens: g.req.Prompt[:len(g.req.Prompt):len(g.req.Prompt)], // shared while it waits
		prompt: len(g.req.Prompt), limit: limit, digest: g.req.Digest,
	}
	q.arrived, q.first = now, noTokens
	q.shapeAs(&g.req)
	q.tenant.open++
	s.arrived++
	g.samples = append(g.samples, q)
	q.mark(now, Queued, q.prompt)
	s.queue.enqueue(q)
	s.queue.offer(q)
	s.expiries.file(q)
}

// Abort ends a request with Reason Abort and err, ErrAborted if nil. A sample
// whose row is running ends when the plan completes. An unknown ID, one that has
// ended say, is ignored.
func (s *Scheduler) Abort(now time.Duration, id RequestID, err error, out []Output) []Output {
	g, ok := s.open[id]
	if !ok {
		return out
	}
	if err == nil {
		err = ErrAborted
	}
	for i := len(g.samples) - 1; i >= 0; i-- { // from behind: those that end leave the list
		out = s.abortSample(now, g.samples[i], err, out)
	}
	s.verify()
	return out
}

func (s *Scheduler) abortSample(now time.Duration, q *sequence, err error, out []Output) []Output {
	if q.inflight == 0 {
		return s.end(now, q, Ending{Reason: Abort, Err: err}, out)
	}
	if q.abort == nil {
		q.abort = err
	}
	return out
}

// Fail ends every open request with Reason Failed and err, and forgets the
// running plans: the device is lost or the process ends. What the cache holds
// stays until Drain.
func (s *Scheduler) Fail(now time.Duration, err error, out []Output) []Output {
	for _, p := range s.plans.inflight {
		for i := range p.rows {
			q := p.rows[i].q
			q.inflight, q.sampling = 0, 0
			q.computed = q.done
		}
	}
	s.plans.inflight = s.plans.inflight[:0]
	s.plans.masks.reset()
	if s.fetches != nil {
		s.fetches.drop()
	}
	failed := Ending{Reason: Failed, Err: err}
	for len(s.running.all) > 0 {
		out = s.end(now, s.running.all[len(s.running.all)-1], failed, out)
	}
	for s.queue.youngest != nil {
		out = s.end(now, s.queue.youngest, failed, out)
	}
	for len(s.running.preempted) > 0 {
		out = s.end(now, s.running.preempted[len(s.running.preempted)-1], failed, out)
	}
	s.verify()
	return out
}

// bindOf is the slot's state for q: the penalties count what it has already.
func (q *sequence) bindOf() engine.SlotBind {
	bind := engine.SlotBind{Slot: q.slot, Sampling: q.req.Sampling, Pages: q.pages}
	q.given = len(q.pages)
	bind.Sampling.Seed = engine.BranchSeed(bind.Sampling.Seed, q.sample)
	if q.req.Sampling.Penalised() {
		bind.Prompt, bind.Output = q.tokens[:q.prompt], q.tokens[q.prompt:]
	}
	return bind
}
