package scheduler

import (
	"fmt"
	"slices"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/mempool"
	"github.com/coppice-llm/coppice/radixcache"
)

// room is what sequences run in: pages and slots. It knows the lease, what the pool
// may still give, and what the cache can give back.
type room struct {
	pageTokens int
	cache      *radixcache.Cache // nil with DisableCache
	lease      *mempool.Lease
	poolFree   int               // free in the pool by its last answer, less what is asked for
	asked      int               // asked for and not granted yet
	demand     int               // idle pages wanted at the last refusal
	owed       int               // recalled by the pool, and not given back yet
	offered    int               // free by an Offer that came while asked was above 0
	slots      []engine.Slot     // free, a stack
	swaps      []engine.PageSwap // of slots that are taken, for the next plan
	below      *tiers            // nil: nothing below the device

	// Scratch: what the tree gives back, what is published, and of preemption.
	freed, lent      []kv.PageID
	release          radixcache.Release
	without, growing []*sequence
}

func newRoom(info engine.Info, cache *radixcache.Cache, slots int) room {
	r := room{pageTokens: info.PageTokens, cache: cache, lease: mempool.NewLease(info.NumPages), poolFree: info.NumPages}
	for slot := slots - 1; slot >= 0; slot-- {
		r.slots = append(r.slots, engine.Slot(slot))
	}
	return r
}

// Want is how many pages to ask the pool for now; 0 for none. It counts them as
// asked for until Grant answers.
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

// Grant takes the pool's answer to Want, maybe fewer pages than asked for, and
// how many the pool has left.
func (s *Scheduler) Grant(pages []kv.PageID, poolFree int) {
	s.room.lease.Add(pages)
	s.room.asked, s.room.poolFree, s.room.offered = 0, max(poolFree, s.room.offered), 0
	s.verify()
}

// Surplus appends idle pages above the high-water mark to dst: they are the
// pool's again. While requests wait there is no surplus.
func (s *Scheduler) Surplus(dst []kv.PageID) []kv.PageID {
	n := s.room.lease.IdlePages() - max(s.cfg.LeaseHighPages, s.room.demand)
	// While a question is on its way the answer would not count what goes back.
	if n <= 0 || s.queue.size > 0 || s.room.asked > 0 || s.tiers != nil && len(s.tiers.reads) > 0 { // they may still be read
		return dst
	}
	if s.cfg.SharePages > 0 && len(s.plans.inflight) > 0 { // others may write to them at once
		return dst
	}
	s.room.poolFree += n
	return s.room.lease.GiveBack(n, dst)
}

// Drain empties the cache and appends every page to dst; they are the pool's
// again. No request may be open; moves in flight count as failed.
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

// take makes n pages idle, by eviction, or returns false and changes nothing. What
// the pool may still give is waited for rather than evicting for it.
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

// evict makes n pages more idle; the caller knows that they can be evicted.
func (l *room) evict(n int) {
	before := l.lease.IdlePages()
	l.reclaim(l.cache.Evict(n, l.freed[:0]))
	if got := l.lease.IdlePages() - before; got < n { // the rest is what namespaces are to keep
		l.reclaim(l.cache.EvictAny(n-got, l.freed[:0]))
	}
	if got := l.lease.IdlePages() - before; got < n {
		panic(fmt.Sprintf("scheduler: %d pages were evicted, %d could be", got, n))
	}
}

// hold takes idle pages of the lease to write to, and appends them to dst.
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

// reclaim takes back pages that the tree let go of to make room, its own or a sequence's
// duplicates, and keeps the slice as scratch.
func (l *room) reclaim(freed []kv.PageID) { l.takeBack(freed, demoted) }

// takeBack is reclaim that decides the fate of the KV.
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

// swap takes the tree's pages for those of q that hold the same; the next plan tells the
// backend.
func (r *room) swap(q *sequence, pages []kv.PageID) {
	for i := q.shared; i < len(pages); i++ {
		if pages[i] != q.pages[i] && i < q.given && pages[i] != kv.NoPage {
			r.swaps = append(r.swaps, engine.PageSwap{Slot: q.slot, At: int32(i), Page: pages[i]})
		}
		q.pages[i] = pages[i]
	}
}

// free gives a slot back. Its table is not needed any more.
func (r *room) free(slot engine.Slot) {
	r.swaps = slices.DeleteFunc(r.swaps, func(w engine.PageSwap) bool { return w.Slot == slot })
	r.slots = append(r.slots, slot)
}

// deviceHigh is the part of the pool beyond which extents are written ahead of need: the
// offload threshold of Dynamo's device tier.
const deviceHigh = 0.85

// deviceFull reports whether the device is beyond its watermark.
func (l *room) deviceFull() bool {
	return float64(l.lease.IdlePages()+l.poolFree) < (1-deviceHigh)*float64(l.lease.Capacity())
}

// spares reports whether n pages and reserve can be had beside m without asking the pool.
func (l *room) spares(m radixcache.Match, n, reserve int) bool {
	o := l.supply(&demand{match: m})
	if o.idle < n && o.granting {
		l.demand = max(l.demand, n)
		return false
	}
	return o.free() >= n+reserve
}
