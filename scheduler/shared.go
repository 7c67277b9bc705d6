package scheduler

import (
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/mempool/tiering"
)

// These methods are for schedulers that lease from one pool (mempool.Division). Each can rely on
// Config.SharePages.

// Offer notes that the pool has poolFree free pages. It is called after a Grant that left
// the pool none.
func (s *Scheduler) Offer(poolFree int) {
	if s.room.asked > 0 { // the answer on its way may be older than the offer
		s.room.offered = poolFree
		return
	}
	s.room.poolFree = poolFree
}

// Recall notes that the pool needs that many pages back, for schedulers that have less than
// their share. Later calls of Return give them back as they come free.
func (s *Scheduler) Recall(pages int) { s.room.recalled += pages }

// Return appends to dst pages that the pool recalled: idle pages, and if they are too few
// also evicted ones, whose KV is not written to lower tiers.
//
// Another scheduler may write to a returned page at once. So Return appends nothing while a
// plan is in flight, whose rows may still use given-up pages, or while a Write reads such
// pages. It then returns wait true: the caller makes no more plans until those plans or
// Writes have ended. But if Writes hold it up, no plan is in flight and moves are due, wait
// is false, because moves need a plan.
func (s *Scheduler) Return(dst []kv.PageID) (_ []kv.PageID, wait bool) {
	l := &s.room
	if l.recalled == 0 {
		return dst, false
	}
	if len(s.plans.inflight) > 0 {
		return dst, true
	}
	if t := s.tiers; t != nil && t.book.Device.Copying() {
		return dst, !t.due
	}
	if short := l.recalled - l.lease.IdlePages(); short > 0 && s.cache != nil {
		l.reclaimAs(s.cache.Evict(short, l.freed[:0]), tiering.Forgotten)
	}
	n := min(l.recalled, l.lease.IdlePages())
	l.recalled -= n
	dst = l.lease.GiveBack(n, dst)
	s.verify()
	return dst, false
}

// poolPages returns the number of pages that requests can rely on, of a pool of all pages.
func (c *Config) poolPages(all int) int {
	if c.SharePages > 0 {
		return c.SharePages
	}
	return all
}
