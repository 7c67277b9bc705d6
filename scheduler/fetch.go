package scheduler

import (
	"fmt"
	"slices"
	"time"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/mempool"
	"github.com/coppice-llm/coppice/mempool/tiering"
	"github.com/coppice-llm/coppice/radixcache"
)

// maxAhead bounds the waiting sequences that a step looks at for a prefix to fetch,
// besides those that it tries to admit. While this many fetches are in progress, no more
// begin ahead of their turn.
const maxAhead = 8

// fetches starts and ends the fetches of waiting sequences: reads of prefixes from lower
// tiers.
type fetches struct {
	tiers    *tiers
	room     *room
	prefixes *prefixes
	queue    *queue
	running  *runningSet

	waiting []*sequence      // with a fetch in progress, in the order in which they began
	pinning []*sequence      // in the queue again, with a pin on the prefix that they have fetched
	begun   uint64           // fetches since New
	hits    [kv.Tiers]uint64 // prompt tokens at first admission, by the tier that they came from
}

// fetch is the state of a waiting sequence in the lower tiers: the extents of its prompt,
// and the reads of those that the device lacks.
//
//	tokens: [ on the device, pinned | adopted, pinned | to come          | to compute ]
//	        0                                           parts[next].Start
//
// For example, a prompt of 1,000 tokens has 288 on the device, 18 pages of 16, and the
// host has its extents [256, 512) and [512, 768). These are the parts; the request
// computes the last 232 tokens. The two pages of [256, 288) stay the tree's own.
type fetch struct {
	extents  []mempool.Extent  // of the tokens that may come from the cache; nil: not computed yet
	tried    bool              // a fetch began since the sequence came into the queue: one per stay
	followed bool              // the sequence has waited for the fetch of another one: once per stay
	parts    []part            // the reads, by position
	next     int               // parts[:next] are adopted
	adopted  int               // tokens of the prefix that are in the tree, pinned
	until    time.Duration     // deadline of the whole fetch; then the rest is computed
	pin      radixcache.NodeID // of adopted; kept until admission, or until the pages are needed
	spans    []span            // the adopted parts, by position
	cached   [kv.Tiers]int     // prompt tokens at first admission, by the tier that they came from
	left     mempool.Key       // last extent that it left in the cache, at its latest preemption or its end
}

// part is one read of a fetch: a whole extent, or the first pages of the last one.
type part struct {
	tiering.Part
	pages   []kv.PageID // held from the end of the read until adoption
	arrived bool        // the read has ended without an error
}

// end returns the position after the part.
func (p *part) end() int { return p.Start + p.Tokens }

// span is a run [lo, hi) of tokens that came from a tier.
type span struct {
	tier   kv.Tier
	lo, hi int
}

// fetchID returns the number under which the book of the tiers knows q's fetch. Each sample
// has its own; 0 is none.
func (q *sequence) fetchID() tiering.RequestID { return tiering.RequestID(q.arrival + 1) }

// fetched returns the state of q's fetch, and makes it if there is none.
func (q *sequence) fetched() *fetch {
	if q.fetch == nil {
		q.fetch = &fetch{pin: radixcache.Root}
	}
	return q.fetch
}

// byTier divides the cached tokens of a sequence's prompt by tier. Tokens that no fetch
// brought were on the device, as all are if f is nil.
func (f *fetch) byTier(cached int) (by [kv.Tiers]int) {
	by[kv.TierDevice] = cached
	if f != nil {
		for t := kv.TierHost; int(t) < kv.Tiers; t++ {
			by[t] = f.cached[t]
			by[kv.TierDevice] -= by[t]
		}
	}
	return by
}

// atTurn is called at the turn of q, with f, the prefix of q on the device. It returns true
// if q leaves its lane: another sequence is fetching the prefix that q needs, and q waits
// for it, or a fetch for q is worth it and begins now. Otherwise atTurn updates f, since
// pins may have changed.
func (fs *fetches) atTurn(now time.Duration, q *sequence, f *found) bool {
	if leader, until := fs.leaderOf(q, f.match.Tokens+f.boundary); leader != nil {
		fs.queue.follow(q, leader, until)
		return true
	}
	// Part of the pinned prefix became unusable, for example after a flush.
	if q.fetch != nil && q.fetch.adopted > f.match.Tokens {
		fs.unpin(q)
		*f = fs.prefixes.find(q)
	}
	if fs.seek(now, q, f.match, false) {
		return true
	}
	*f = fs.prefixes.find(q) // seek may have evicted pages
	return false
}

// ahead begins fetches for the sequences that will be admitted next, so that their prefixes
// arrive while others compute. work is Scheduler.work. While a sequence blocks the queue,
// ahead does nothing: pages held for reads would delay that sequence.
func (fs *fetches) ahead(now time.Duration, work uint64) {
	w := fs.queue
	if w.size == 0 || w.blocked != nil {
		return
	}
	fs.running.reserved = -1
	for range maxAhead {
		if len(fs.waiting) >= maxAhead {
			break
		}
		q := w.best(work)
		if q == nil {
			break
		}
		if q.fetch != nil && q.fetch.tried || !fs.seek(now, q, w.lookup(q), true) {
			w.leaveLane(q)
			w.skipped = append(w.skipped, q)
		}
	}
	w.rejoin()
}

// seek begins to fetch the part of q's prefix after the match m, if the book expects the
// fetch to take less time than computing, and if the pages can be had. It reports whether a
// fetch began; q is then out of its lane. ahead says that it is not q's turn yet: fetches
// that begin ahead of a turn may not raise the pages held for reads above a quarter of the
// pool.
func (fs *fetches) seek(now time.Duration, q *sequence, m radixcache.Match, ahead bool) bool {
	if q.computesAll() || m.Distrusted {
		return false
	}
	f, layout := q.fetched(), &fs.tiers.layout
	if f.tried {
		return false
	}
	if f.extents == nil {
		f.extents = layout.AppendExtents(nil, q.req.Namespace, q.tokens[:q.matchable()], q.req.Media)
	}
	i := m.Tokens / layout.ExtentTokens()
	if i >= len(f.extents) {
		return false
	}
	_, tokens := fs.tiers.book.Lookup(now, f.extents[i:], m.Tokens, nil)
	pages := (f.extents[i].Start + tokens - m.Tokens) / layout.PageTokens
	if tokens == 0 || pages <= 0 || ahead && (fs.tiers.held+pages > fs.room.lease.Capacity()/4 || fs.queue.blocked != nil) {
		return false
	}
	if !fs.room.spares(m, pages, fs.running.reserve(q)) {
		return false
	}
	// Pinned before pages are taken, so that the prefix on the device is not evicted to make room.
	f.pin, f.adopted, f.tried = fs.room.cache.Keep(m), m.Tokens, true
	if !fs.room.take(pages) {
		panic(fmt.Sprintf("scheduler: %d pages can't be had for a fetch of request %d", pages, q.req.ID))
	}
	if !fs.begin(now, q, f.extents[i:]) {
		fs.unpin(q)
		return false
	}
	fs.queue.leaveLane(q)
	q.place = fetching
	fs.begun++
	return true
}

// leaderOf returns the sequence whose fetch q should wait for, and until, the number of
// leading tokens that q waits for; nil if there is none. have is the number of q's tokens
// whose KV exists on the device already. The fetch must bring at least a page more of q's
// prefix than that. q waits this way once per stay in the queue, since a fetch that fails
// must not make q wait for the next one and so on.
func (fs *fetches) leaderOf(q *sequence, have int) (leader *sequence, until int) {
	if len(fs.waiting) == 0 || q.fetch != nil && (q.fetch.followed || q.fetch.tried) {
		return nil, 0
	}
	most, size := q.tokens[:q.matchable()], fs.tiers.layout.PageTokens
	for _, r := range fs.waiting {
		known := r.tokens[:r.fetch.parts[len(r.fetch.parts)-1].end()]
		if have+size > min(len(known), len(most)) || known[have] != most[have] {
			continue
		}
		if n := min(q.shares(r, 0, known, most), q.together(r, size)); n >= have+size && n > until {
			leader, until = r, n
		}
	}
	if leader != nil {
		q.fetched().followed = true
	}
	return leader, until - until%size
}

// begin asks the book for reads of the extents xs for q, and holds pages for them. It
// reports whether that worked. It may fail because making room has evicted from a tier what
// should be read, or because another sequence reads the same extent already.
func (fs *fetches) begin(now time.Duration, q *sequence, xs []mempool.Extent) bool {
	f, size := q.fetch, fs.tiers.layout.PageTokens
	f.parts, f.next, f.until = f.parts[:0], 0, 0
	fs.waiting = append(fs.waiting, q)
	good := true
	for _, p := range fs.tiers.book.Want(now, q.fetchID(), xs, f.adopted, nil) {
		pages := make([]kv.PageID, 0, p.Tokens/size)
		for at := p.Start; at < p.Start+p.Tokens; at += size {
			if at < f.adopted {
				pages = append(pages, kv.NoPage)
			}
		}
		f.parts = append(f.parts, part{Part: p})
		if fs.tiers.reading[p.Move] != nil {
			good = false // another sequence's read
			break
		}
		if pages, good = fs.room.lease.Hold(p.Tokens/size-len(pages), pages); !good {
			break
		}
		fs.tiers.holdFor(p.Move, q, pages)
		f.until = max(f.until, p.Deadline)
	}
	if good = good && len(f.parts) > 0; !good {
		fs.letGo(q)
	}
	return good
}

// read handles the end of the Read id; err is nil if it succeeded. The pages go to the
// sequence that waits for them. If no sequence waits for them, or the Read failed, the
// pages are released.
func (fs *fetches) read(id tiering.MoveID, err error) {
	a := fs.tiers.reading[id]
	if a == nil {
		return
	}
	delete(fs.tiers.reading, id)
	fs.tiers.coming -= count(a.pages)
	if a.q == nil || err != nil {
		fs.tiers.release(a.pages)
		return
	}
	parts := a.q.fetch.parts
	i := slices.IndexFunc(parts, func(p part) bool { return p.Move == id })
	parts[i].pages, parts[i].arrived = a.pages, true
}

// tick handles the passing of time: conversations become idle, and fetches reach their
// deadline.
func (fs *fetches) tick(now time.Duration) {
	fs.tiers.now = now
	fs.tiers.wake(now)
	fs.settle()
}

// settle adopts the extents that have arrived, and ends fetches that bring nothing more:
// all has arrived, a read failed or can no longer begin, or the deadline has passed.
func (fs *fetches) settle() {
	fs.tiers.book.Lapse(fs.tiers.now)
	for i := 0; i < len(fs.waiting); i++ {
		q := fs.waiting[i]
		fs.adopt(q)
		if _, waits := fs.tiers.book.Arrived(q.fetchID()); waits && fs.tiers.now < q.fetch.until {
			if len(q.wait.follow.followers) > 0 {
				fs.queue.release(q, q.fetch.adopted, false)
			}
			continue
		}
		fs.goOn(q)
		i--
	}
}

// goOn ends the fetch of q and puts q back into its lane. The fetched prefix stays pinned
// until admission: otherwise a busy queue would evict it before its turn.
func (fs *fetches) goOn(q *sequence) {
	fs.letGo(q)
	fs.queue.release(q, q.fetch.adopted, true)
	if q.fetch.pin != radixcache.Root {
		fs.pinning = append(fs.pinning, q)
	}
	if q.early() {
		q.place = expected
		return
	}
	if fs.queue.ranksByCache(q) {
		fs.queue.lookup(q)
	}
	fs.queue.requeue(q)
}

// letGo ends the fetch of q before all of it has been adopted, if q is fetching.
func (fs *fetches) letGo(q *sequence) {
	i := slices.Index(fs.waiting, q)
	if i < 0 {
		return
	}
	fs.waiting = slices.Delete(fs.waiting, i, i+1)
	f := q.fetch
	for i := range f.parts[f.next:] {
		fs.giveUp(q, &f.parts[f.next+i])
	}
	f.parts, f.next = nil, 0
	fs.tiers.book.Forget(q.fetchID())
	fs.tiers.begun()
}

// giveUp releases the pages of a part of q's fetch that is not adopted: those of a part that
// has arrived after one that has not, and those of a read that has not begun. A read in
// progress still writes to its pages, so those are released when it ends.
func (fs *fetches) giveUp(q *sequence, p *part) {
	if p.arrived {
		fs.tiers.release(p.pages)
		p.pages, p.arrived = nil, false
		return
	}
	a := fs.tiers.reading[p.Move]
	if a == nil || a.q != q {
		return
	}
	if a.q = nil; !fs.tiers.book.InFlight(p.Move) {
		delete(fs.tiers.reading, p.Move)
		fs.tiers.coming -= count(a.pages)
		fs.tiers.release(a.pages)
	}
}

// adopt puts parts of q's fetch into the tree and moves q's pin to their end. It takes the
// parts that have arrived, in order, and stops at the first one that has not. The tree
// holds media as wholes, so a part that ends within a medium waits for the next one.
func (fs *fetches) adopt(q *sequence) {
	f, l, size := q.fetch, fs.room, fs.tiers.layout.PageTokens
	for f.next < len(f.parts) && f.parts[f.next].arrived {
		upto := f.next
		for upto < len(f.parts) && f.parts[upto].arrived && q.wholeMedia(f.parts[upto].end()) != f.parts[upto].end() {
			upto++
		}
		if upto == len(f.parts) || !f.parts[upto].arrived {
			return
		}
		end := f.parts[upto].end()
		key := q.key(end)
		if l.cache.Distrusted() > 0 && l.cache.Match(key).Distrusted {
			return
		}
		lent := l.lent[:0]
		for len(lent) < f.parts[f.next].Start/size {
			lent = append(lent, kv.NoPage) // the tree's own pages, which Extend does not read
		}
		for i := f.next; i <= upto; i++ {
			lent = append(lent, f.parts[i].pages...)
			fs.tiers.held -= count(f.parts[i].pages)
			f.parts[i].pages = nil
		}
		pin, freed := l.cache.ExtendHashed(f.pin, key, fs.knownHashes(q, upto), lent, l.freed[:0])
		l.reclaim(freed)
		for i := f.adopted / size; i < len(lent); i++ {
			if l.lease.Held(lent[i]) {
				l.lease.Publish(lent[i : i+1])
			}
		}
		f.pin = pin
		fs.adopted(q, upto, lent)
		l.lent = lent[:0]
		fs.queue.published(q, f.parts[f.next].Start, end)
		f.next, f.adopted = upto+1, end
	}
}

// knownHashes returns the hashes of q's first blocks that the tree or the events of lower
// tiers have already, at most up to the end of part upto.
func (fs *fetches) knownHashes(q *sequence, upto int) []kv.BlockHash {
	if !fs.tiers.hashedAlike(q) {
		return nil
	}
	f := q.fetch
	hashes := fs.tiers.hashes(q, f.pin, f.adopted)
	for _, p := range f.parts[f.next : upto+1] {
		hashes = fs.tiers.blocks.appendKnown(hashes, &f.extents[p.Start/fs.tiers.layout.ExtentTokens()], p.end())
	}
	return hashes
}

// adopted notes that the parts of q's fetch from f.next to upto, both included, are in the
// tree. pages are the pages of q's prefix by position. Extents that are whole are
// registered with the book, as they are on the device too now.
func (fs *fetches) adopted(q *sequence, upto int, pages []kv.PageID) {
	f := q.fetch
	for i := f.next; i <= upto; i++ {
		p := &f.parts[i]
		f.spans = append(f.spans, span{p.From, max(p.Start, f.adopted), p.end()})
		x := f.extents[p.Start/fs.tiers.layout.ExtentTokens()]
		if len(x.Tokens) == p.Tokens && !slices.Contains(pages[p.Start/fs.tiers.layout.PageTokens:p.end()/fs.tiers.layout.PageTokens], kv.NoPage) {
			fs.tiers.register([]mempool.Extent{x}, pages, fs.tiers.hashes(q, q.fetch.pin, p.end()))
		}
	}
}

// admitted ends the fetch of a sequence that has been admitted: its own pin holds the
// prefix now. At the first admission it counts the cached tokens by tier.
func (fs *fetches) admitted(q *sequence) {
	f := q.fetch
	if f == nil {
		return
	}
	fs.unpin(q)
	if !q.bill.seenSlot {
		for _, x := range f.spans {
			n := max(min(x.hi, q.computed, q.prompt)-x.lo, 0)
			f.cached[x.tier] += n
			fs.hits[x.tier] += uint64(n)
		}
		fs.tiers.used(f.extents, q.computed)
	}
	f.extents, f.spans, f.parts, f.tried, f.followed = nil, nil, nil, false, false
}

// unpin releases the pin on q's fetched prefix. The prefix stays cached until its pages
// are needed.
func (fs *fetches) unpin(q *sequence) {
	if q.fetch != nil && q.fetch.pin != radixcache.Root {
		fs.room.cache.Unpin(q.fetch.pin)
		q.fetch.pin = radixcache.Root
		fs.room.keepQuotas()
	}
	if i := slices.Index(fs.pinning, q); i >= 0 {
		fs.pinning = slices.Delete(fs.pinning, i, i+1)
	}
}

// leave ends the fetch of a sequence that leaves the queue. Its followers go back into
// their lanes.
func (fs *fetches) leave(q *sequence) {
	if fs == nil || q.fetch == nil {
		return
	}
	if q.place == fetching {
		fs.letGo(q)
		fs.queue.release(q, q.fetch.adopted, true)
		q.place = waiting
	}
	fs.unpin(q)
}

// stop ends all fetches and unpins what they have brought.
func (fs *fetches) stop() {
	for len(fs.waiting) > 0 {
		fs.goOn(fs.waiting[0])
	}
	for len(fs.pinning) > 0 {
		fs.unpin(fs.pinning[0])
	}
}

// drop ends all fetches and all moves as failed: the device is lost, or the scheduler is
// drained.
func (fs *fetches) drop() {
	for len(fs.waiting) > 0 {
		fs.letGo(fs.waiting[0])
	}
	fs.tiers.drop()
}

// nextWake returns the time of the next deadline of a fetch or the next idle conversation,
// and false if there is neither.
func (fs *fetches) nextWake() (at time.Duration, some bool) {
	if len(fs.tiers.idle) > 0 {
		at, some = fs.tiers.idle[0].at, true
	}
	for _, q := range fs.waiting {
		if !some || q.fetch.until < at {
			at, some = q.fetch.until, true
		}
	}
	return at, some
}
