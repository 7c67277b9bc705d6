package scheduler

import (
	"fmt"
	"time"

	"github.com/coppice-llm/coppice/kv"
)

// Add accepts a request into the queue or refuses it with one of the errors of
// this package, wrapped with the figures. A refused request leaves no trace and
// gets no Output.
func (s *Scheduler) Add(now time.Duration, req Request) error {
	limit, err := s.validate(&req)
	if err != nil {
		return err
	}
	if _, dup := s.open[req.ID]; dup {
		return fmt.Errorf("%w: ID %d is open already", ErrInvalid, req.ID)
	}
	if len(s.waiting) >= s.cfg.MaxQueued {
		return fmt.Errorf("%w: %d requests wait, at most %d may", ErrQueueFull, len(s.waiting), s.cfg.MaxQueued)
	}
	q := &sequence{
		req:     req,
		arrival: s.arrived,
		tokens:  append(make([]kv.Token, 0, len(req.Prompt)+limit), req.Prompt...),
		prompt:  len(req.Prompt),
		limit:   limit,
		arrived: now,
	}
	q.req.Prompt = q.tokens[:q.prompt]
	s.arrived++
	s.open[req.ID] = q
	s.waiting = append(s.waiting, q)
	s.metrics.Requests++
	return nil
}

// Abort ends a request with Reason Abort and err, ErrAborted if nil. One whose
// row is running ends when the plan completes. An unknown ID, one that has ended
// say, is ignored.
func (s *Scheduler) Abort(now time.Duration, id RequestID, err error, out []Output) []Output {
	q, ok := s.open[id]
	if !ok {
		return out
	}
	if err == nil {
		err = ErrAborted
	}
	if q.inPlan {
		if q.abort == nil {
			q.abort = err
		}
		return out
	}
	out = s.end(now, q, Ending{Reason: Abort, Err: err}, out)
	s.verify()
	return out
}

// Fail ends every open request with Reason Failed and err, and forgets the
// running plan: the device is lost or the process ends. What the cache holds
// stays until Drain.
func (s *Scheduler) Fail(now time.Duration, err error, out []Output) []Output {
	if s.inflight != nil {
		for i, q := range s.inflight.rows {
			q.computed, q.inPlan = s.inflight.starts[i], false
		}
		s.inflight = nil
	}
	for len(s.running) > 0 {
		out = s.end(now, s.running[len(s.running)-1], Ending{Reason: Failed, Err: err}, out)
	}
	for len(s.waiting) > 0 {
		out = s.end(now, s.waiting[len(s.waiting)-1], Ending{Reason: Failed, Err: err}, out)
	}
	s.verify()
	return out
}
