package scheduler

import (
	"slices"
	"time"

	"github.com/coppice-llm/coppice/radixcache"
)

// end is the one place where a request ends: it leaves the device or the queue,
// is forgotten, and its ending is appended to out.
func (s *Scheduler) end(now time.Duration, q *sequence, e Ending, out []Output) []Output {
	if q.admitted {
		valid := q.computed
		if e.Reason == Failed {
			valid = 0 // keep what is cached already, add nothing
		}
		s.leave(q, valid)
	} else {
		i := slices.Index(s.waiting, q)
		s.waiting = slices.Delete(s.waiting, i, i+1)
	}
	delete(s.open, q.req.ID)
	e.PromptTokens, e.CachedTokens, e.OutputTokens = q.prompt, q.cachedTokens, q.outputTokens()
	e.Preemptions, e.Queued, e.FirstToken, e.Total = q.preemptions, q.queued, q.firstToken, now-q.arrived
	s.metrics.Endings[e.Reason]++
	return append(out, Output{Request: q.req.ID, Ending: e})
}

// leave takes a running sequence off the device. KV of its first valid tokens
// goes to the cache as evictable, all other pages of its own go back to the
// lease, and its slot is free; the backend runs batches in order, so both may be
// reused at once.
func (s *Scheduler) leave(q *sequence, valid int) {
	s.publish(q, valid, true)
	s.pages.lease.Drop(q.own())
	if s.cache != nil {
		s.cache.Unpin(q.pin)
	}
	s.slots = append(s.slots, q.slot)
	i := slices.Index(s.running, q)
	s.running = slices.Delete(s.running, i, i+1)
	q.admitted, q.pin, q.shared, q.computed, q.target, q.pages = false, radixcache.Root, 0, 0, 0, q.pages[:0]
}
