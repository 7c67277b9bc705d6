package scheduler

import (
	"fmt"
	"time"
)

// AddOrDisplace is Add, except that with Config.Displace a request may enter a full queue
// at the cost of waiting requests of lower priority. It ends requests that were never
// admitted, whole, lowest priority first and then youngest, with ErrDisplaced, and appends
// their endings to out. If they would not make enough room, none ends, and the request is
// refused with ErrQueueFull. Cost: O(log n) for each sample that ends.
//
// For example, in a queue of 4 with waiting requests of priority 0, 0, 1 and 2, a request
// of priority 1 with two samples displaces the two of priority 0; one with three samples
// is refused.
//
// SGLang has the same as --max-queued-requests with priority scheduling; its
// --priority-scheduling-preemption-threshold is PreemptThreshold. For its
// --schedule-low-priority-values-first negate the priorities. Its
// --abort-on-priority-when-disabled has no counterpart: under other policies priorities
// still decide which sequence is preempted first.
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
			why := Ending{Reason: Failed, Err: fmt.Errorf("%w: request %d has priority %d, this one %d", ErrDisplaced, req.ID, req.Priority, g.req.Priority)}
			for i := len(g.samples) - 1; i >= 0; i-- { // backward: a sample that ends leaves the list
				out = s.end(now, g.samples[i], why, out)
			}
			s.metrics.Displaced++
		}
	}
	s.accept(now, req, limit)
	return out, nil
}

// displace returns the requests that must end so that lack more samples fit into the queue,
// or nil if the waiting requests of lower priority than req have too few samples. It
// removes the samples of the returned requests from the heap w.displaceable; if it returns
// nil, all are in the heap again.
func (w *queue) displace(req *Request, lack int) (groups []*group) {
	for lack > 0 {
		if w.displaceable.empty() || w.displaceable.head().req.Priority >= req.Priority {
			for _, g := range groups {
				for _, q := range g.samples {
					w.offer(q)
				}
			}
			return nil
		}
		g := w.displaceable.head().group
		for _, q := range g.samples {
			w.withdraw(q)
		}
		groups = append(groups, g)
		lack -= len(g.samples)
	}
	return groups
}
