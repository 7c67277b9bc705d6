package schedtest

import (
	"errors"
	"slices"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/scheduler"
)

// refusals checks that a request is refused with an error that applies to it, and accepted if none
// does.
type refusals struct{ watcher }

func (c *refusals) added(o *order, err error) {
	reasons := c.reasons(o, err == nil)
	if err == nil {
		if len(reasons) > 0 {
			c.failf("request %d is accepted, want %v", o.req.ID, reasons[0])
		}
		return
	}
	if !slices.ContainsFunc(reasons, func(want error) bool { return errors.Is(err, want) }) {
		c.failf("request %d of %d prompt and %d output tokens is refused (%v), the allowed reasons are %v",
			o.req.ID, len(o.req.Prompt), o.req.MaxTokens, err, reasons)
	}
}

// reasons lists the errors with which the request o may be refused. accepted says that the
// scheduler has accepted it, so that its samples are in the scheduler's counts already.
func (c *refusals) reasons(o *order, accepted bool) []error {
	info, req, n := &c.r.info, &o.req, len(o.req.Prompt)
	var all []error
	add := func(when bool, err error) {
		if when {
			all = append(all, err)
		}
	}
	pool := poolTokens(&c.r.cfg, info)
	add(n == 0, scheduler.ErrEmptyPrompt)
	add(n > info.MaxPositions, scheduler.ErrPromptTooLong)
	add(n > pool, scheduler.ErrTooLarge)
	add(n > 0 && n+req.MaxTokens-1 > info.MaxPositions, scheduler.ErrPromptTooLong)
	add(n > 0 && n+req.MaxTokens-1 > pool, scheduler.ErrTooLarge)
	add(req.Samples < 0 || req.Samples > c.r.cfg.MaxSamples || req.Deadline < 0 || req.QueueTimeout < 0, scheduler.ErrInvalid)
	add(req.MaxTokens < 0 || foreignToken(req.Prompt, info.Vocab) || req.Sampling.Validate(info.Vocab) != nil, scheduler.ErrInvalid)
	limit := outputLimit(req, &c.r.cfg, info)
	add(req.MinTokens < 0 || req.MinTokens > limit || unreachable(req), scheduler.ErrInvalid)
	add(c.r.book.byID[req.ID] != nil, scheduler.ErrInvalid)
	all = append(all, c.crowd(o, accepted)...)
	return all
}

// crowd returns the errors that apply to o because too many samples wait, of all tenants or
// of its own. accepted is as for reasons. Preempted samples that still have a row in flight
// do not count, as in the scheduler.
func (c *refusals) crowd(o *order, accepted bool) (all []error) {
	waiting, own, samples := 0, 0, max(o.req.Samples, 1)
	for _, t := range c.r.sched.Tenants() {
		waiting += t.Waiting
		if t.Tenant == o.req.Tenant {
			own = t.Waiting
		}
	}
	if accepted {
		waiting, own = waiting-samples, own-samples
	}
	if lack := waiting + samples - c.r.cfg.MaxQueued; lack > 0 && !c.displaces(&o.req, samples, lack) {
		all = append(all, scheduler.ErrQueueFull)
	}
	if most := c.r.cfg.Tenant.MaxQueued; most > 0 && own+samples > most {
		all = append(all, scheduler.ErrTenantFull)
	}
	return all
}

// displaces reports whether req may displace enough waiting requests to enter the full
// queue. samples is the number of samples of req. lack is the number of samples by which
// the queue is too small.
func (c *refusals) displaces(req *scheduler.Request, samples, lack int) bool {
	if !c.r.cfg.Displace || samples > c.r.cfg.MaxQueued {
		return false
	}
	for _, o := range c.r.book.live {
		if o.req.Priority < req.Priority && !slices.ContainsFunc(o.samples, func(s *sample) bool { return s.binds > 0 }) {
			lack -= o.open
		}
	}
	return lack <= 0
}

// foreignToken reports whether a token is outside the vocabulary.
func foreignToken(tokens []kv.Token, vocab int) bool {
	return slices.ContainsFunc(tokens, func(t kv.Token) bool { return uint64(t) >= uint64(vocab) })
}

// unreachable reports whether MinTokens can't be reached because all AllowedTokens are stop
// tokens.
func unreachable(req *scheduler.Request) bool {
	return req.MinTokens > 0 && len(req.AllowedTokens) > 0 &&
		!slices.ContainsFunc(req.AllowedTokens, func(t kv.Token) bool { return !slices.Contains(req.StopTokens, t) })
}
