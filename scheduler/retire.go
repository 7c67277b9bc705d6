package scheduler

import (
	"slices"
	"time"

	"github.com/coppice-llm/coppice/radixcache"
	"github.com/coppice-llm/coppice/scheduler/internal/planted"
)

// end ends the sample q with the reason and error of e, and appends its ending to out. No
// other method ends a sample. It takes q off the device or out of the queue, settles the
// account of its tenant and fills in the figures of e.
func (s *Scheduler) end(now time.Duration, q *sequence, e Ending, out []Output) []Output {
	e.ComputedTokens = q.settlePrompt()
	switch q.place {
	case running:
		valid := q.known()
		if e.Reason == Failed {
			valid = 0 // the cached part stays, and nothing is added
		}
		s.prefixes.publish(q, valid, true)
		s.turnEnds(now, q, valid)
		s.leave(q, valid)
	case preempted:
		s.running.preempted = remove(s.running.preempted, q)
	default:
		s.fetches.leave(q)
		s.queue.dequeue(q)
	}
	q.place = ended
	s.expiries.drop(q)
	if e.Reason == Stop || e.Reason == Length {
		if s.tiers != nil && q.fetch != nil && !q.fetch.left.IsZero() {
			s.tiers.rests(q.fetch.left)
		}
		if q.req.Pooling == NoPooling {
			q.group.class.Learn(q.outputTokens())
		}
		if s.cfg.Curve != nil && s.cache != nil {
			s.cache.Observe(q.key(len(q.tokens)))
		}
	}
	q.bill.mark(now, Ended, q.outputTokens())
	e.PromptTokens, e.CachedTokens, e.OutputTokens = q.prompt, q.bill.cachedTokens, q.outputTokens()
	if d := q.rows.drafts; d != nil {
		e.Drafts = d.counts
	}
	if s.running.fault == planted.BillRefused {
		drafted, accepted := e.Drafts.Sum()
		e.OutputTokens += int(drafted - accepted)
	}
	e.CachedByTier = q.fetch.byTier(q.bill.cachedTokens)
	e.Preemptions, e.Queued, e.FirstToken, e.Total = q.bill.preemptions, q.bill.queued, q.bill.firstToken, now-q.bill.arrived
	e.Timeline = q.bill.timeline
	s.metrics.Endings[e.Reason]++

	g := q.group
	g.samples = remove(g.samples, q)
	final := len(g.samples) == 0
	if final {
		delete(s.open, q.req.ID)
	}
	q.group.tenant.Open--
	s.accounts.Rest(now, q.group.tenant)
	return append(out, Output{Request: q.req.ID, Sample: q.sample, Final: final, Ending: e})
}

// leave takes a running sequence off the device. The KV of its first tokens, as many as
// valid says, becomes evictable cache; all other pages of its own go back to the lease, and
// its slot is free. Pages and slot can be reused at once although rows may be in flight,
// because the backend runs batches in order: the next owner's batch writes after those
// rows.
func (s *Scheduler) leave(q *sequence, valid int) {
	s.prefixes.publish(q, valid, true)
	if s.tiers != nil && q.cache.vouches && !s.prefixes.flushedSince(q) && !q.cache.doubtful {
		if last := s.tiers.computed(q, valid, true); !last.IsZero() {
			q.fetched().left = last
		}
	}
	s.room.lease.Drop(q.table.own())
	if s.cache != nil {
		s.cache.Unpin(q.table.pin)
		s.prefixes.purge() // it may have been the last holder of distrusted nodes
		s.room.keepQuotas()
	}
	s.room.free(q.table.slot)
	s.running.all = remove(s.running.all, q)
	if q.done < q.target {
		s.running.prefilling = remove(s.running.prefilling, q)
	}
	s.queue.release(q, q.done, true)
	q.group.tenant.Running--
	q.rows.life++
	q.table.pin, q.table.shared, q.computed, q.done, q.cache.matched, q.target, q.table.pages, q.table.sent = radixcache.Root, 0, 0, 0, 0, 0, nil, 0
}

// remove removes q from a list and keeps the order.
func remove(list []*sequence, q *sequence) []*sequence {
	i := slices.Index(list, q)
	return slices.Delete(list, i, i+1)
}
