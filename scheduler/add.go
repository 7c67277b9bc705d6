package scheduler

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/scheduler/internal/planted"
)

// Add accepts a request into the queue, or refuses it. The error of a refusal wraps an
// error of this package, such as ErrQueueFull, with the numbers that led to it. A refused
// request leaves no trace and gets no Output.
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

// full returns the error for a request that finds the queue full.
func (w *queue) full() error {
	return fmt.Errorf("%w: %d samples wait, at most %d may", ErrQueueFull, w.size, w.cfg.MaxQueued)
}

// admissible checks everything about a request except whether the queue is full, fills in
// Samples and returns the output limit. The queue is checked last, and apart:
// AddOrDisplace must not end a waiting request for one that would then be refused for
// another reason.
func (s *Scheduler) admissible(req *Request) (limit int, err error) {
	if n := len(req.Session); n > MaxSessionName {
		return 0, refuse("Session", ErrInvalid, "the session's name has %d bytes, want at most %d", n, MaxSessionName)
	}
	if limit, err = s.cfg.checkRequest(&s.info, req); err != nil {
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
		if t := s.accounts.Known(req.Tenant); t != nil {
			n = t.Waiting
		}
		if n+req.Samples > most {
			return 0, fmt.Errorf("%w: %d samples of tenant %q wait, at most %d may", ErrTenantFull, n, req.Tenant, most)
		}
	}
	return limit, nil
}

// accept makes the samples of an admissible request and puts them into the queue. limit is
// the output limit that admissible returned, in tokens.
func (s *Scheduler) accept(now time.Duration, req Request, limit int) {
	req.Prompt = slices.Clone(req.Prompt) // the caller may change its slices
	req.StopTokens, req.Sampling.Bias = slices.Clone(req.StopTokens), slices.Clone(req.Sampling.Bias)
	req.AllowedTokens, req.Media = slices.Clone(req.AllowedTokens), slices.Clone(req.Media)
	req.Prediction = slices.Clone(req.Prediction[:min(len(req.Prediction), s.info.MaxPositions)]) // no output is longer
	if s.running.fault == planted.AllPublic {
		req.PublicTokens = len(req.Prompt)
	}
	limits := s.cfg.tenantConfig(req.Tenant)
	g := &group{
		req: req, born: s.work, allowed: newAllowed(&s.info, &req),
		tenant: s.accounts.Find(now, req.Tenant, limits.Weight, limits.MaxRunning), class: s.lengths.Of(cmp.Or(req.Class, req.Tenant)),
	}
	if req.Format != nil {
		g.allowed.format = s.plans.masks.Format(req.Format, req.StopTokens, g.allowed.early != nil)
	}
	s.open[req.ID] = g
	s.turnBegins(now, &g.req)
	for i := range req.Samples {
		s.enter(now, g, i, limit)
	}
	s.metrics.Requests++
	s.verify()
}

// enter makes sample i of g's request and puts it into the queue. limit is the sample's
// output limit in tokens. Waiting samples share the request's copy of the prompt. The
// capacity of each sample's slice is cut to its length, so that an append copies the
// prompt.
func (s *Scheduler) enter(now time.Duration, g *group, i, limit int) {
	q := &sequence{
		req: &g.req, group: g, sample: i, arrival: s.arrived,
		tokens: g.req.Prompt[:len(g.req.Prompt):len(g.req.Prompt)],
		prompt: len(g.req.Prompt), limit: limit, rows: rowsOut{digest: g.req.Digest},
	}
	q.bill.arrived, q.bill.timed, q.cache.ownFrom = now, g.req.Timeline, noTokens
	q.shapeAs(&g.req)
	q.draftAs(&s.cfg, &s.info)
	q.group.tenant.Open++
	s.arrived++
	g.samples = append(g.samples, q)
	q.bill.mark(now, Queued, q.prompt)
	s.queue.enqueue(q)
	s.queue.offer(q)
	s.expiries.file(q)
}

// Abort ends a request with Reason Abort and err, or ErrAborted if err is nil, and appends
// the endings to out. A sample with a row in flight ends later, when the plan of that row
// completes, because the backend still writes to its pages. Abort ignores an unknown id,
// for example of a request that has ended: a client may disconnect at any time.
func (s *Scheduler) Abort(now time.Duration, id RequestID, err error, out []Output) []Output {
	g, ok := s.open[id]
	if !ok {
		return out
	}
	if err == nil {
		err = ErrAborted
	}
	for i := len(g.samples) - 1; i >= 0; i-- { // backward: a sample that ends leaves the list
		out = s.abortSample(now, g.samples[i], err, out)
	}
	s.verify()
	return out
}

// abortSample ends q with Reason Abort and err, and appends its ending to out. If a row of
// q is in flight, it only notes err, and q ends with its last row; a later call does not
// replace the noted error.
func (s *Scheduler) abortSample(now time.Duration, q *sequence, err error, out []Output) []Output {
	if q.rows.inflight == 0 {
		return s.end(now, q, Ending{Reason: Abort, Err: err}, out)
	}
	if q.abort == nil {
		q.abort = err
	}
	return out
}

// Fail ends every open request with Reason Failed and err, and appends the endings to out.
// It is for a lost device or the end of the process. Fail forgets the plans in flight:
// Complete must not be called for them. The cache keeps its pages until Drain.
func (s *Scheduler) Fail(now time.Duration, err error, out []Output) []Output {
	for _, p := range s.plans.inflight {
		for i := range p.rows {
			q := p.rows[i].q
			q.rows.inflight, q.rows.sampling = 0, 0
			q.landDrafts()
			q.computed = q.done
		}
	}
	s.plans.inflight = s.plans.inflight[:0]
	s.plans.masks.Reset()
	if s.fetches != nil {
		s.dropExpectations()
		s.tiers.dropParks(err)
		s.fetches.drop()
	}
	failed := Ending{Reason: Failed, Err: err}
	// Running samples end first: their followers go back into lanes before the queue is
	// emptied.
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

// bindOf returns what the backend must know when q gets its slot: sampling parameters,
// pages, and for penalties the tokens that they count. A sequence that was preempted has
// output tokens already when it gets a slot again.
func (q *sequence) bindOf() engine.SlotBind {
	bind := engine.SlotBind{Slot: q.table.slot, Sampling: q.req.Sampling, Pages: q.table.pages}
	q.table.sent = len(q.table.pages)
	bind.Sampling.Seed = engine.BranchSeed(bind.Sampling.Seed, q.sample)
	if q.req.Sampling.Penalised() {
		bind.Prompt, bind.Output = q.tokens[:q.prompt], q.tokens[q.prompt:]
	}
	return bind
}
