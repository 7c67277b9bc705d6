package scheduler

import (
	"fmt"
	"slices"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/mempool"
	"github.com/coppice-llm/coppice/radixcache"
)

// room owns pages and slots. It connects the lease, the pool's last answer and the cache.
// A page is in one of four states: idle or held in the lease, cached in the tree, or free
// in the pool.
type room struct {
	pageTokens int
	cache      *radixcache.Cache // nil with DisableCache
	lease      *mempool.Lease
	poolFree   int               // free in the pool by its last answer, less asked
	asked      int               // pages asked for and not granted yet
	demand     int               // idle pages wanted at the latest refusal in this step
	owed       int               // pages recalled by the pool and not given back yet
	offered    int               // free pages by an Offer that came while asked was above 0
	slots      []engine.Slot     // free slots, a stack
	swaps      []engine.PageSwap // page exchanges of slots in use, for the next plan
	below      *tiers            // nil: no tiers below the device

	// Scratch: freed are pages that the tree gave back, lent a copy of a page list for the
	// tree; release, without and growing belong to preemption.
	freed, lent      []kv.PageID
	release          radixcache.Release
	without, growing []*sequence
}

// newRoom makes a room without pages. Until the pool answers, all its pages count as free.
func newRoom(info engine.Info, cache *radixcache.Cache, slots int) room {
	r := room{pageTokens: info.PageTokens, cache: cache, lease: mempool.NewLease(info.NumPages), poolFree: info.NumPages}
	for slot := slots - 1; slot >= 0; slot-- {
		r.slots = append(r.slots, engine.Slot(slot))
	}
	return r
}

// Want returns how many pages to ask the pool for now, 0 for none, and counts them as
// asked for until Grant answers. It asks when idle pages are below the low-water mark or
// the demand of a sequence that did not fit. Only one question is outstanding at a time.
func (s *Scheduler) Want() int {
	l := &s.room
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

// Grant takes the pool's answer to Want: the pages, which may be fewer than asked for, and
// how many the pool has left.
func (s *Scheduler) Grant(pages []kv.PageID, poolFree int) {
	s.room.lease.Add(pages)
	s.room.asked, s.room.poolFree, s.room.offered = 0, max(poolFree, s.room.offered), 0
	s.verify()
}

// Surplus appends to dst the idle pages above the high-water mark, which belong to the
// pool again. While requests wait there is no surplus: they would take the same pages
// back, and with a high-water mark below the need of the first of them pages would move to
// and fro for ever.
func (s *Scheduler) Surplus(dst []kv.PageID) []kv.PageID {
	n := s.room.lease.IdlePages() - max(s.cfg.LeaseHighPages, s.room.demand)
	// The answer to a question on its way would not count pages returned now. Pages that a
	// Write still reads must not be given to others.
	if n <= 0 || s.queue.size > 0 || s.room.asked > 0 || s.tiers != nil && len(s.tiers.reads) > 0 {
		return dst
	}
	if s.cfg.SharePages > 0 && len(s.plans.inflight) > 0 { // another scheduler may write to them at once
		return dst
	}
	s.room.poolFree += n
	return s.room.lease.GiveBack(n, dst)
}

// Drain empties the cache and appends every page to dst; they belong to the pool again.
// Moves in flight count as failed. It panics if a request is open.
func (s *Scheduler) Drain(dst []kv.PageID) []kv.PageID {
	if len(s.open) > 0 {
		panic("scheduler: Drain with requests open")
	}
	if s.fetches != nil {
		s.fetches.drop()
	}
	if s.cache != nil {
		s.cache.Flush()
		s.room.reclaim(s.cache.Evict(s.cache.Stats().Pages, s.room.freed[:0]))
	}
	n := s.room.lease.IdlePages()
	s.room.poolFree += n
	dst = s.room.lease.GiveBack(n, dst)
	s.verify()
	return dst
}

// take makes n pages idle, by eviction, and reports whether it did; otherwise it changes
// nothing but the demand. If the pool may still give pages, take asks for these first:
// free pages cost nothing, evicted ones a prefix.
func (l *room) take(n int) bool {
	o := l.supply(&demand{pages: n})
	if short := n - o.idle; short > 0 {
		if o.granting {
			l.demand = max(l.demand, n)
			return false
		}
		if short > o.evictable {
			return false
		}
		l.evict(short)
	}
	return true
}

// evict makes n more pages idle. The caller knows that they can be evicted; it panics
// otherwise.
func (l *room) evict(n int) {
	before := l.lease.IdlePages()
	l.reclaim(l.cache.Evict(n, l.freed[:0]))
	if got := l.lease.IdlePages() - before; got < n { // the rest is within MinQuotas
		l.reclaim(l.cache.EvictAny(n-got, l.freed[:0]))
	}
	if got := l.lease.IdlePages() - before; got < n {
		panic(fmt.Sprintf("scheduler: %d pages were evicted, %d could be", got, n))
	}
}

// hold takes n idle pages that the next plan may write to, and appends them to dst. Writes
// to lower tiers that still read them are noted, so that the batch waits.
func (l *room) hold(n int, dst []kv.PageID) []kv.PageID {
	from := len(dst)
	dst, _ = l.lease.Hold(n, dst)
	if l.below != nil {
		l.below.overwrites(dst[from:])
	}
	return dst
}

// waitsForGrant reports whether the pool may still give pages.
func (l *room) waitsForGrant() bool { return l.poolFree > 0 || l.asked > 0 }

// reclaim takes back pages that the tree gave up to make room, its own or a sequence's
// duplicates, and keeps the slice as scratch.
func (l *room) reclaim(freed []kv.PageID) { l.takeBack(freed, demoted) }

// takeBack is reclaim with a choice of the fate of the KV in lower tiers.
func (l *room) takeBack(freed []kv.PageID, to fate) {
	if l.below != nil {
		l.below.lose(freed, to)
	}
	for i, id := range freed {
		if l.lease.Held(id) {
			l.lease.Drop(freed[i : i+1])
		} else {
			l.lease.Evicted(freed[i : i+1])
		}
	}
	l.freed = freed[:0]
}

// swap replaces pages of q by the tree's pages with the same KV. The next plan tells the
// backend about those that its page table has already.
func (r *room) swap(q *sequence, pages []kv.PageID) {
	for i := q.shared; i < len(pages); i++ {
		if pages[i] != q.pages[i] && i < q.given && pages[i] != kv.NoPage {
			r.swaps = append(r.swaps, engine.PageSwap{Slot: q.slot, At: int32(i), Page: pages[i]})
		}
		q.pages[i] = pages[i]
	}
}

// free gives a slot back. Swaps of its page table are dropped with it.
func (r *room) free(slot engine.Slot) {
	r.swaps = slices.DeleteFunc(r.swaps, func(w engine.PageSwap) bool { return w.Slot == slot })
	r.slots = append(r.slots, slot)
}

// deviceHigh is the used part of the pool beyond which extents are written to lower tiers
// ahead of need: the offload threshold of Dynamo's device tier.
const deviceHigh = 0.85

// deviceFull reports whether more than deviceHigh of the pool is in use: with 1,000 pages,
// fewer than 150 are idle or free.
func (l *room) deviceFull() bool {
	return float64(l.lease.IdlePages()+l.poolFree) < (1-deviceHigh)*float64(l.lease.Capacity())
}

// spares reports whether n pages, and reserve beyond them, can be had beside m without
// preempting. If the pool may still grant the missing pages, it is asked instead.
func (l *room) spares(m radixcache.Match, n, reserve int) bool {
	o := l.supply(&demand{match: m})
	if o.idle < n && o.granting {
		l.demand = max(l.demand, n)
		return false
	}
	return o.free() >= n+reserve
}
