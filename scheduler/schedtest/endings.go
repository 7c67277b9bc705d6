package schedtest

import (
	"errors"
	"fmt"
	"slices"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/engine/sim"
	"github.com/coppice-llm/coppice/scheduler"
)

// endings checks that every sample of every accepted request ends once, for a valid reason and
// with a bill that agrees with the plans; that no output follows an ending; and that aborts and
// deadlines end requests at once.
type endings struct{ watcher }

// planned: a request that was aborted or is past its deadline gets no more rows.
func (c *endings) planned(p *scheduler.Plan, rows []rowView) {
	for _, v := range rows {
		if s := v.of; s != nil && (s.of.abort != nil || s.endBy > 0) {
			c.failf("request %d was aborted or is out of time, but gets a row in plan %d", s.of.req.ID, p.Batch.Seq)
		}
	}
}

func (c *endings) told(s *sample, o *scheduler.Output) {
	e := &o.Ending
	switch {
	case s == nil:
		c.failf("request %d gets an output (%v), but was not accepted or has ended", o.Request, e.Reason)
	case !o.Sampled && e.Reason == scheduler.NotEnded:
		c.failf("request %d gets an empty output", o.Request)
	case o.Final != (e.Reason != scheduler.NotEnded && s.of.open == 1):
		c.failf("request %d has %d samples open, final is %v, ending %v", o.Request, s.of.open, o.Final, e.Reason)
	case e.Reason == scheduler.NotEnded:
		return
	}
	if err := c.reason(s, e); err != nil {
		c.failf("request %d: %v", o.Request, err)
	}
	if err := c.bill(s, o); err != nil {
		c.failf("request %d: %v: bill %+v", o.Request, err, *e)
	}
}

func (c *endings) reason(s *sample, e *scheduler.Ending) error {
	switch e.Reason {
	case scheduler.Stop, scheduler.Length:
		if e.Err != nil {
			return fmt.Errorf("ends by %v with an error: %w", e.Reason, e.Err)
		}
	case scheduler.Abort:
		if !c.mayAbort(s, e.Err) {
			return fmt.Errorf("ends by abort with %v, the caller's cause is %v, its deadline %v, its queue timeout %v after %v",
				e.Err, s.of.abort, s.of.req.Deadline, s.of.req.QueueTimeout, s.of.added)
		}
	case scheduler.Failed:
		if errors.Is(e.Err, scheduler.ErrDisplaced) {
			return c.displaced(s)
		}
		if byDevice, byRow := c.r.lost != nil && errors.Is(e.Err, c.r.lost), errors.Is(e.Err, errRow); !byDevice && !byRow {
			return fmt.Errorf("fails without a fault: %w", e.Err)
		}
	default:
		return fmt.Errorf("ends by %v, an unknown reason", e.Reason)
	}
	return nil
}

// displaced checks, for a sample that ended by ErrDisplaced, that a request of higher
// priority is being added, and that no sample of the ended request was ever admitted.
func (c *endings) displaced(s *sample) error {
	switch by := c.r.book.coming; {
	case !c.r.cfg.Displace || by == nil:
		return errors.New("is displaced, but no request arrived")
	case by.Priority <= s.of.req.Priority:
		return fmt.Errorf("has priority %d and is displaced by one of %d", s.of.req.Priority, by.Priority)
	case slices.ContainsFunc(s.of.samples, func(o *sample) bool { return o.binds > 0 }):
		return errors.New("is displaced, but was admitted before")
	}
	c.r.report.Displaced++
	return nil
}

func (c *endings) bill(s *sample, o *scheduler.Output) error {
	e := &o.Ending
	now := c.r.clock.Now()
	got, first := len(s.got), s.firstAt
	if o.Sampled {
		if got++; got == 1 {
			first = now
		}
	}
	cached, queued, firstToken := max(s.cached, 0), s.boundAt, first
	if s.binds > 0 {
		queued -= s.of.added
	}
	if got > 0 {
		firstToken -= s.of.added
	}
	switch {
	case e.PromptTokens != len(s.of.req.Prompt):
		return fmt.Errorf("the prompt has %d tokens", len(s.of.req.Prompt))
	case e.OutputTokens != got:
		return fmt.Errorf("the caller got %d tokens", got)
	case e.CachedTokens >= e.PromptTokens || e.CachedTokens != cached && (s.cached >= 0 || s.binds == 0):
		return fmt.Errorf("the first row began at token %d", cached)
	case e.ComputedTokens != min(s.ran, e.PromptTokens-e.CachedTokens):
		return fmt.Errorf("%d tokens of the prompt were computed", s.ran)
	case e.Preemptions < s.binds-1 || e.Preemptions > s.binds:
		return fmt.Errorf("a slot was bound %d times", s.binds)
	case e.Queued != queued || e.FirstToken != firstToken || e.Total != now-s.of.added:
		return fmt.Errorf("the first slot came after %v, the first token after %v, the end after %v", queued, firstToken, now-s.of.added)
	}
	return timeline(s, e)
}

// timeline checks that the timeline in e begins when s is queued, ends with its ending, and
// has every admission and preemption; a request that asked for no timeline must get none.
func timeline(s *sample, e *scheduler.Ending) error {
	if !s.of.req.Timeline {
		if e.Timeline != nil {
			return errors.New("a timeline was not requested")
		}
		return nil
	}
	var count [scheduler.Ended + 1]int
	last := scheduler.Mark{}
	for i, m := range e.Timeline {
		if m.At < last.At || (i == 0) != (m.What == scheduler.Queued) {
			return fmt.Errorf("mark %d of the timeline is %v after %v", i, m, last)
		}
		count[m.What]++
		last = m
	}
	if last.What != scheduler.Ended || last.At != e.Total || count[scheduler.Matched] != s.binds || count[scheduler.Preempted] != e.Preemptions {
		return fmt.Errorf("the timeline has %d admissions and %d preemptions, want %d and %d, and ends with %v",
			count[scheduler.Matched], count[scheduler.Preempted], s.binds, e.Preemptions, last)
	}
	return nil
}

// mayAbort reports whether err is a valid cause for s to end by Abort: the caller aborted
// the request with err, or the time limit that err names has passed.
func (c *endings) mayAbort(s *sample, err error) bool {
	req, now := &s.of.req, c.r.clock.Now()
	switch {
	case s.of.abort != nil && errors.Is(err, s.of.abort):
		return true
	case errors.Is(err, scheduler.ErrDeadline):
		return req.Deadline > 0 && now >= req.Deadline
	case errors.Is(err, scheduler.ErrQueueTimeout):
		return req.QueueTimeout > 0 && now >= s.of.added+req.QueueTimeout && s.binds == 0
	}
	return false
}

// expired: a sample past its deadline has ended, or ends with its last row in flight.
func (c *endings) expired() {
	now := c.r.clock.Now()
	for s := range c.r.book.liveSamples() {
		req := &s.of.req
		late := req.Deadline > 0 && req.Deadline <= now || req.QueueTimeout > 0 && s.of.added+req.QueueTimeout <= now && s.binds == 0
		switch {
		case s.ended || !late:
		case !c.r.runs(s):
			c.failf("request %d is out of time, is in no plan in flight, and is still open", req.ID)
		case s.endBy == 0:
			s.endBy = s.lastSeq
		}
	}
}

func (c *endings) aborted(o *order) {
	if o.open > 0 && o.abortPlan == 0 {
		c.failf("request %d was aborted, is in no plan in flight, and is still open", o.req.ID)
	}
}

func (c *endings) completed(seq uint64) {
	for _, o := range c.r.book.live {
		if o.abort != nil && o.abortPlan <= seq {
			c.failf("request %d was aborted and plan %d has completed since, but it is still open", o.req.ID, seq)
		}
		for _, s := range o.samples {
			if !s.ended && s.endBy > 0 && s.endBy <= seq {
				c.failf("request %d was out of time and plan %d has completed since, but it is still open", o.req.ID, seq)
			}
		}
	}
}

func (c *endings) settled() {
	if open := c.r.sched.Open(); open != len(c.r.book.live) {
		c.failf("the scheduler has %d open requests, want %d", open, len(c.r.book.live))
	}
	if c.r.lost != nil && len(c.r.book.live) > 0 {
		c.failf("%d requests are open after the loss of the device", len(c.r.book.live))
	}
}

func (c *endings) finished() {
	if b := &c.r.book; b.ended != b.samples || len(b.live) > 0 {
		c.failf("%d endings are due, %d samples ended", b.samples, b.ended)
	}
}

// outputs checks that callers get exactly the model's tokens for their prompt, however it was
// cached, batched, chunked or preempted.
type outputs struct{ watcher }

func (c *outputs) told(s *sample, o *scheduler.Output) {
	c.embedding(s, o)
	got := len(s.got)
	if o.Sampled {
		if got >= len(s.want) || s.want[got] != o.Token {
			c.failf("request %d: output %d is token %d, want %v", o.Request, got, o.Token, s.want)
		}
		got++
	}
	switch reason := o.Ending.Reason; {
	case reason == scheduler.Stop || reason == scheduler.Length:
		e, want := &o.Ending, &s.reason
		if got != len(s.want) || reason != want.Reason || e.StopToken != want.StopToken || e.StopString != want.StopString {
			c.failf("request %d ends by %v %q after %d tokens, want %v %q after %d",
				o.Request, reason, e.StopString, got, want.Reason, want.StopString, len(s.want))
		}
	case reason == scheduler.NotEnded && got == len(s.want):
		c.failf("request %d continues after its %d tokens", o.Request, got)
	}
}

// sanitizer reports errors of the simulated backend, which checks each batch and the contents
// of each page that a row reads.
type sanitizer struct{ watcher }

func (c *sanitizer) resulted(f *flight, _ *engine.Result, err error) {
	switch {
	case err == nil, errors.Is(err, errDevice):
	case errors.Is(err, sim.ErrCorrupt):
		c.failf("%v", err) // which names the batch
	default:
		c.failf("batch %d: %v", f.seq, err)
	}
}
