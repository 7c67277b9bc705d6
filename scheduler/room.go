package scheduler

import (
	"fmt"
	"slices"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/mempool"
	"github.com/coppice-llm/coppice/mempool/tiering"
	"github.com/coppice-llm/coppice/radixcache"
	"github.com/coppice-llm/coppice/scheduler/internal/planted"
)

// room owns pages and slots. It connects the lease, the pool's last answer and the cache.
// A page is in one of four states: idle or held in the lease, cached in the tree, or free
// in the pool.
type room struct {
	pageTokens int
	cache      *radixcache.Cache // nil with DisableCache
	lease      *mempool.Lease
	poolFree   int               // free pages that the pool last reported, less those in asked
	asked      int               // pages asked for and not granted yet
	demand     int               // most idle pages that a sequence wanted in this step when the pool could still give some
	recalled   int               // pages that the pool wants back and has not got yet
	offered    int               // free pages of the pool by an Offer that came while asked was above 0
	slots      []engine.Slot     // free slots, a stack
	swaps      []engine.PageSwap // page exchanges of slots in use, for the next plan
	below      *tiers            // nil: no tiers below the device
	fault      planted.Fault

	// Scratch: freed has pages that the tree gave back, lent a copy of a page list that is
	// passed to the tree; release, without and growing are used for preemption.
	freed, lent      []kv.PageID
	release          radixcache.Release
	without, growing []*sequence
}

// newRoom makes a room without pages, with the given number of slots, all free. Until the
// pool answers, all pages of the pool count as free.
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
	// If the pool has not answered Want yet, its answer would not count pages that are returned
	// now. Pages that a Write still reads must not be given to others.
	if n <= 0 || s.queue.size > 0 || s.room.asked > 0 || s.tiers != nil && s.tiers.book.Device.Copying() {
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
		s.dropExpectations()
		s.tiers.dropParks(ErrParkFailed)
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

// take makes sure that n pages are idle, by eviction if need be, and reports whether they
// are. If it returns false, it has changed nothing but the demand. If too few pages are
// idle and the pool may still give some, take evicts nothing: it notes n as demand, so that
// Want asks, and returns false. Free pages cost nothing, evicted ones a prefix.
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

// evict makes n more pages idle. The caller knows that n pages can be evicted; otherwise
// evict panics.
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

// hold takes n idle pages, to which the next plan may write, and appends them to dst. If a
// Write to a lower tier still reads such a page, the next batch will wait for that Write.
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

// reclaim takes back the pages in freed: those that the tree gave up to make room, and
// duplicates that a sequence held itself. It keeps the slice freed as scratch.
func (l *room) reclaim(freed []kv.PageID) { l.reclaimAs(freed, tiering.Demoted) }

// reclaimAs is reclaim for any fate of the extents that lose pages. The argument to
// determines what happens to their KV in lower tiers.
func (l *room) reclaimAs(freed []kv.PageID, to tiering.Fate) {
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

// keepQuotas frees cached pages of namespaces beyond their quotas. It is called after pins
// were released, which protected such pages until then.
func (l *room) keepQuotas() {
	if l.fault != planted.KeepOver {
		l.reclaim(l.cache.KeepQuotas(l.freed[:0]))
	}
}

// swap replaces pages of q, from q.shared on, by the entries of pages: the tree's pages
// with the same KV. Where the backend's page table of the slot has the old page already,
// the next plan tells the backend to replace it.
func (r *room) swap(q *sequence, pages []kv.PageID) {
	for i := q.table.shared; i < len(pages); i++ {
		if pages[i] != q.table.pages[i] && i < q.table.sent && pages[i] != kv.NoPage {
			r.swaps = append(r.swaps, engine.PageSwap{Slot: q.table.slot, At: int32(i), Page: pages[i]})
		}
		q.table.pages[i] = pages[i]
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

// spares reports whether a sequence with match m can get n pages without preempting, so
// that another reserve pages are left. If the pool may still grant the missing pages,
// spares notes n as demand and returns false.
func (l *room) spares(m radixcache.Match, n, reserve int) bool {
	o := l.supply(&demand{match: m})
	if o.idle < n && o.granting {
		l.demand = max(l.demand, n)
		return false
	}
	return o.free() >= n+reserve
}
