package scheduler

import "github.com/coppice-llm/coppice/kv"

// sharing is a scheduler's part where several lease from one pool (mempool.Division), each
// with Config.SharePages that it can count on.
type sharing struct{ s *Scheduler }

// Offer says that the pool has so many free pages, after a Grant that left none.
func (h sharing) Offer(poolFree int) {
	s := h.s
	if s.room.asked > 0 { // the answer on its way may be older
		s.room.offered = poolFree
		return
	}
	s.room.poolFree = poolFree
}

// Recall says that pages are to go back to the pool, for others that have less than their
// share. Return gives them as they come free.
func (h sharing) Recall(pages int) { h.s.room.owed += pages }

// Return appends to dst pages that the pool recalled: idle ones, and what can be evicted
// for it. While a plan is in flight, which may still touch what was given up, or a Write
// reads pages that were, it appends none; wait is true then: no more plans are to be made
// until those have completed. What it evicts is not written to lower tiers.
func (h sharing) Return(dst []kv.PageID) (_ []kv.PageID, wait bool) {
	s, l := h.s, &h.s.room
	if l.owed == 0 {
		return dst, false
	}
	if len(s.plans.inflight) > 0 {
		return dst, true
	}
	if t := s.tiers; t != nil && len(t.reads) > 0 {
		return dst, len(t.due) == 0 // what is due goes with the next plan
	}
	if short := l.owed - l.lease.IdlePages(); short > 0 && s.cache != nil {
		l.takeBack(s.cache.Evict(short, l.freed[:0]), forgotten)
	}
	n := min(l.owed, l.lease.IdlePages())
	l.owed -= n
	dst = l.lease.GiveBack(n, dst)
	s.verify()
	return dst, false
}

// poolPages is the most that requests may count on.
func (c *Config) poolPages(all int) int {
	if c.SharePages > 0 {
		return c.SharePages
	}
	return all
}
