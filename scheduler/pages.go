package scheduler

import (
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/mempool"
)

// ledger is the scheduler's view of its pages: the lease, and what the pool may
// still give.
type ledger struct {
	lease    *mempool.Lease
	poolFree int         // free in the pool as last heard, less what is asked for
	asked    int         // asked for and not granted yet
	demand   int         // idle pages wanted at the last refusal
	freed    []kv.PageID // scratch of what the tree gives back
}

func newLedger(capacity int) ledger {
	return ledger{lease: mempool.NewLease(capacity), poolFree: capacity}
}

// Want is how many pages to ask the pool for now; 0 for none. It counts them as
// asked for until Grant answers.
func (s *Scheduler) Want() int {
	l := &s.pages
	if l.asked > 0 || l.poolFree == 0 {
		return 0
	}
	idle := l.lease.IdlePages()
	if idle >= max(s.cfg.LeaseLowPages, l.demand) {
		return 0
	}
	l.asked = min(max(s.cfg.LeaseBulkPages, l.demand-idle), l.poolFree)
	l.poolFree -= l.asked
	return l.asked
}

// Grant takes the pool's answer to Want, maybe fewer pages than asked for, and
// how many the pool has left.
func (s *Scheduler) Grant(pages []kv.PageID, poolFree int) {
	s.pages.lease.Add(pages)
	s.pages.asked, s.pages.poolFree = 0, poolFree
	s.verify()
}

// Surplus appends idle pages above the high-water mark to dst: they are the
// pool's again. While requests wait there is no surplus.
func (s *Scheduler) Surplus(dst []kv.PageID) []kv.PageID {
	n := s.pages.lease.IdlePages() - max(s.cfg.LeaseHighPages, s.pages.demand)
	// While a question is on its way the answer would not count what goes back.
	if n <= 0 || s.queue.size > 0 || s.pages.asked > 0 {
		return dst
	}
	s.pages.poolFree += n
	return s.pages.lease.GiveBack(n, dst)
}

// Drain empties the cache and appends every page to dst; they are the pool's
// again. No request may be open.
func (s *Scheduler) Drain(dst []kv.PageID) []kv.PageID {
	if len(s.open) > 0 {
		panic("scheduler: Drain with requests open")
	}
	if s.cache != nil {
		s.cache.Flush()
		s.pages.settle(s.cache.Evict(s.cache.Stats().Pages, s.pages.freed[:0]))
	}
	n := s.pages.lease.IdlePages()
	s.pages.poolFree += n
	dst = s.pages.lease.GiveBack(n, dst)
	s.verify()
	return dst
}

// room makes n pages idle, or returns false. What the pool may still give is
// waited for rather than evicting for it.
func (s *Scheduler) room(n int) bool {
	l := &s.pages
	if !s.mayRoom(n) {
		return false
	}
	if short := n - l.lease.IdlePages(); short > 0 {
		l.settle(s.cache.Evict(short, l.freed[:0]))
	}
	return l.lease.IdlePages() >= n
}

// mayRoom is room without evicting: what it refuses, room refuses too.
func (s *Scheduler) mayRoom(n int) bool {
	l := &s.pages
	short := n - l.lease.IdlePages()
	if short <= 0 {
		return true
	}
	if l.waitsForGrant() {
		l.demand = max(l.demand, n)
		return false
	}
	return s.cache != nil && s.cache.EvictablePages() >= short
}

// waitsForGrant tells whether a refusal by room may pass without eviction.
func (l *ledger) waitsForGrant() bool { return l.poolFree > 0 || l.asked > 0 }

// settle takes back pages that the tree let go of, its own or a sequence's
// duplicates, and keeps the slice as scratch.
func (l *ledger) settle(freed []kv.PageID) {
	for i, id := range freed {
		if l.lease.Held(id) {
			l.lease.Drop(freed[i : i+1])
		} else {
			l.lease.Evicted(freed[i : i+1])
		}
	}
	l.freed = freed[:0]
}
