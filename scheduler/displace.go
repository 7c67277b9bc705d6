package scheduler

import (
	"fmt"
	"time"
)

// AddOrDisplace is Add that, with Config.Displace, lets a request into a full queue
// if enough samples wait there of requests of lower priority that were never
// admitted: the lowest of these, of equal ones the youngest, end with ErrDisplaced,
// whole requests, and their endings are appended to out. If they are too few, none
// ends, and the request is refused with ErrQueueFull. Cost: the heap of such samples.
//
// SGLang does so under --max-queued-requests with priority scheduling on; its
// --priority-scheduling-preemption-threshold is PreemptThreshold. There is nothing
// here like --schedule-low-priority-values-first, for which one negates priorities, or
// --abort-on-priority-when-disabled: under other policies priorities still say whom
// room is taken from.
func (s *Scheduler) AddOrDisplace(now time.Duration, req Request, out []Output) ([]Output, error) {
	limit, err := s.admissible(&req)
	if err != nil {
		return out, err
	}
	if lack := s.queue.size + req.Samples - s.cfg.MaxQueued; lack > 0 {
		groups := s.queue.displace(&req, lack)
		if groups == nil {
			return out, s.queue.full()
		}
		for _, g := range groups {
			why := Ending{Reason: Failed, Err: fmt.Errorf("%w: request %d of priority %d came, this one has %d", ErrDisplaced, req.ID, req.Priority, g.req.Priority)}
			for i := len(g.samples) - 1; i >= 0; i-- { // from behind: those that end leave the list
				out = s.end(now, g.samples[i], why, out)
			}
			s.metrics.Displaced++
		}
	}
	s.accept(now, req, limit)
	return out, nil
}

// displace returns the requests to end so that lack more samples may wait, or nil if
// those of lower priority than req are not enough.
func (w *queue) displace(req *Request, lack int) (groups []*group) {
	for lack > 0 {
		if w.displaceable.empty() || w.displaceable.first().req.Priority >= req.Priority {
			for _, g := range groups {
				for _, q := range g.samples {
					w.offer(q)
				}
			}
			return nil
		}
		g := w.displaceable.first().group
		for _, q := range g.samples {
			w.keep(q)
		}
		groups = append(groups, g)
		lack -= len(g.samples)
	}
	return groups
}
