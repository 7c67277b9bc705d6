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

// maxAhead bounds how many waiting sequences a step looks at for a prefix to fetch, beside
// those that it tries to admit, and how many of these wait for one at a time.
const maxAhead = 8

// fetches are the prefixes that waiting sequences have fetched from lower tiers, or fetch.
type fetches struct {
	*tiers
	prefixes *prefixes
	queue    *queue
	running  *runningSet

	waiting []*sequence      // for Reads, by when they began to wait
	keepers []*sequence      // that wait with a pin on what they have fetched
	begun   uint64           // so far
	hits    [kv.Tiers]uint64 // tokens of prompts at first admission, by the tier they came from
}

// fetch is the state of a waiting sequence towards the lower tiers: the extents of its prompt,
// and the reads of those that the device lacks.
//
//	tokens: [ on the device, pinned | adopted, pinned | to come          | to compute ]
//	        0                                           parts[next].Start
type fetch struct {
	extents  []mempool.Extent // of the tokens that may come from the cache; nil: not looked at yet
	tried    bool             // since it came into the queue
	followed bool             // it has waited for the fetch of another one
	parts    []part
	next     int // parts before it are adopted
	adopted  int // tokens that stand in the tree, as far as the fetch has seen
	until    time.Duration
	pin      radixcache.NodeID // of adopted; kept until q is admitted or gives way
	spans    []span            // what was fetched, by position
	cached   [kv.Tiers]int     // at first admission, by the tier it came from
	left     []mempool.Key     // the last extents of what q left in the cache, at preemptions and at its end
}

// part is one read of a fetch.
type part struct {
	tiering.Part
	pages   []kv.PageID // held from the read's end until they are adopted
	arrived bool
}

// end is the first token after a part.
func (p *part) end() int { return p.Start + p.Tokens }

// span is a run of tokens that came from a tier.
type span struct {
	tier   kv.Tier
	lo, hi int
}

// fetchID names the sequence to the policy.
func (q *sequence) fetchID() tiering.RequestID { return tiering.RequestID(q.arrival + 1) }

// fetched is the state of q's fetch, made if need be.
func (q *sequence) fetched() *fetch {
	if q.fetch == nil {
		q.fetch = &fetch{pin: radixcache.Root}
	}
	return q.fetch
}

// cachedByTier says in which tier the cached tokens of q's prompt were.
func (q *sequence) cachedByTier() (by [kv.Tiers]int) {
	by[kv.TierDevice] = q.cachedTokens
	if q.fetch != nil {
		for t := kv.TierHost; int(t) < kv.Tiers; t++ {
			by[t] = q.fetch.cached[t]
			by[kv.TierDevice] -= by[t]
		}
	}
	return by
}

// first is called at the turn of q. It puts q beside the queue if a fetch of its prefix is
// under way for another sequence, or begins now, and reports whether it did. Otherwise it
// brings f up to date.
func (fs *fetches) first(now time.Duration, q *sequence, f *found) bool {
	if leader, until := fs.leaderOf(q, f.match.Tokens+f.boundary); leader != nil {
		fs.queue.follow(q, leader, until)
		return true
	}
	if q.fetch != nil && q.fetch.adopted > f.match.Tokens { // it pins what it can't use
		fs.unpin(q)
		*f = fs.prefixes.find(q)
	}
	if fs.seek(now, q, f.match, false) {
		return true
	}
	*f = fs.prefixes.find(q) // room may have been made
	return false
}

// ahead begins fetches for the sequences that will be admitted next.
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

// seek begins to fetch the prefix of q after m from lower tiers, if that is faster than
// computing it and there is room, and puts q beside the queue. With ahead it is not q's turn
// yet, and the fetch may take less room.
func (fs *fetches) seek(now time.Duration, q *sequence, m radixcache.Match, ahead bool) bool {
	if q.wantsPrompt() || m.Distrusted {
		return false
	}
	f, layout := q.fetched(), &fs.layout
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
	tokens := fs.policy.Worth(now, f.extents[i:], m.Tokens)
	pages := (f.extents[i].Start + tokens - m.Tokens) / layout.PageTokens
	if tokens == 0 || pages <= 0 || ahead && (fs.held+pages > fs.room.lease.Capacity()/4 || fs.queue.blocked != nil) {
		return false
	}
	if !fs.room.spares(m, pages, fs.running.reserve(q)) {
		return false
	}
	f.pin, f.adopted, f.tried = fs.room.cache.Keep(m), m.Tokens, true // what comes before must not make room
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

// leaderOf finds the fetch that q should wait for, by its sequence, nil if none: one that
// brings at least a page more of q's prefix than the have tokens that q finds now. A sequence
// waits so once.
func (fs *fetches) leaderOf(q *sequence, have int) (leader *sequence, until int) {
	if len(fs.waiting) == 0 || q.fetch != nil && (q.fetch.followed || q.fetch.tried) {
		return nil, 0
	}
	most, size := q.tokens[:q.matchable()], fs.layout.PageTokens
	for _, r := range fs.waiting {
		known := r.tokens[:r.fetch.parts[len(r.fetch.parts)-1].end()]
		if r.req.Namespace != q.req.Namespace || have+size > min(len(known), len(most)) || known[have] != most[have] {
			continue
		}
		if n := q.shares(r, 0, known, most); n >= have+size && n > until {
			leader, until = r, n
		}
	}
	if leader != nil {
		q.fetched().followed = true
	}
	return leader, until - until%size
}

// begin has the policy read what it has of xs, and holds pages for it. It reports whether
// that can be: making room may have cost what was to be read.
func (fs *fetches) begin(now time.Duration, q *sequence, xs []mempool.Extent) bool {
	f, size := q.fetch, fs.layout.PageTokens
	f.parts, f.next, f.until = f.parts[:0], 0, 0
	fs.waiting = append(fs.waiting, q)
	good := true
	for _, p := range fs.policy.Want(now, q.fetchID(), xs, f.adopted, nil) {
		pages := make([]kv.PageID, 0, p.Tokens/size)
		for at := p.Start; at < p.Start+p.Tokens; at += size {
			if at < f.adopted {
				pages = append(pages, kv.NoPage)
			}
		}
		f.parts = append(f.parts, part{Part: p})
		if fs.reading[p.Move] != nil {
			good = false // another one's
			break
		}
		if pages, good = fs.room.lease.Hold(p.Tokens/size-len(pages), pages); !good {
			break
		}
		fs.holdFor(p.Move, q, pages)
		f.until = max(f.until, p.Deadline)
	}
	if good = good && len(f.parts) > 0; !good {
		fs.letGo(q)
	}
	return good
}

// read takes the ending of a Read.
func (fs *fetches) read(id tiering.MoveID, err error) {
	a := fs.reading[id]
	if a == nil {
		return
	}
	delete(fs.reading, id)
	fs.coming -= count(a.pages)
	if a.q == nil || err != nil {
		fs.release(a.pages)
		return
	}
	parts := a.q.fetch.parts
	i := slices.IndexFunc(parts, func(p part) bool { return p.Move == id })
	parts[i].pages, parts[i].arrived = a.pages, true
}

// tick lets the time pass: conversations become idle, and fetches come to their end.
func (fs *fetches) tick(now time.Duration) {
	fs.now = now
	fs.wake(now)
	fs.settle()
}

// settle adopts the extents that have arrived, and ends fetches that bring nothing more.
func (fs *fetches) settle() {
	for i := 0; i < len(fs.waiting); i++ {
		q := fs.waiting[i]
		fs.adopt(q)
		if _, waits := fs.policy.Arrived(q.fetchID()); waits && fs.now < q.fetch.until {
			if len(q.followers) > 0 {
				fs.queue.release(q, q.fetch.adopted, false)
			}
			continue
		}
		fs.goOn(q)
		i--
	}
}

// goOn ends the fetch of q and puts q back into its lane.
func (fs *fetches) goOn(q *sequence) {
	fs.letGo(q)
	fs.queue.release(q, q.fetch.adopted, true)
	if q.fetch.pin != radixcache.Root {
		fs.keepers = append(fs.keepers, q)
	}
	if fs.queue.ranksByCache(q) {
		fs.queue.lookup(q)
	}
	fs.queue.requeue(q)
}

// letGo gives up the rest of q's fetch. It returns the pages of extents that came after a gap
// and of reads that have not begun; those of the other reads return when their Read ends.
func (fs *fetches) letGo(q *sequence) {
	i := slices.Index(fs.waiting, q)
	if i < 0 {
		return
	}
	fs.waiting = slices.Delete(fs.waiting, i, i+1)
	f := q.fetch
	for _, p := range f.parts[f.next:] {
		if p.arrived {
			fs.release(p.pages)
			continue
		}
		a := fs.reading[p.Move]
		if a == nil || a.q != q {
			continue
		}
		if a.q = nil; !a.begun {
			delete(fs.reading, p.Move)
			fs.coming -= count(a.pages)
			fs.release(a.pages)
		}
	}
	f.parts, f.next = nil, 0
	fs.policy.Forget(q.fetchID())
	fs.collect()
}

// adopt puts the extents that have come without a gap into the tree. A part that ends within a
// medium waits for the next one.
func (fs *fetches) adopt(q *sequence) {
	f, l, size := q.fetch, fs.room, fs.layout.PageTokens
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
			lent = append(lent, kv.NoPage) // the tree's own, which it does not look at
		}
		for i := f.next; i <= upto; i++ {
			lent = append(lent, f.parts[i].pages...)
			fs.held -= count(f.parts[i].pages)
			f.parts[i].pages = nil
		}
		pin, freed := l.cache.Extend(f.pin, key, lent, l.freed[:0])
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

// adopted notes that the parts of q's fetch up to one of them, included, stand in the tree, on pages.
func (fs *fetches) adopted(q *sequence, upto int, pages []kv.PageID) {
	f := q.fetch
	for i := f.next; i <= upto; i++ {
		p := &f.parts[i]
		f.spans = append(f.spans, span{p.From, max(p.Start, f.adopted), p.end()})
		x := f.extents[p.Start/fs.layout.ExtentTokens()]
		if len(x.Tokens) == p.Tokens && !slices.Contains(pages[p.Start/fs.layout.PageTokens:p.end()/fs.layout.PageTokens], kv.NoPage) {
			fs.register([]mempool.Extent{x}, pages, fs.hashes(q, q.fetch.pin, p.end()))
		}
	}
}

// admitted ends the fetch of a sequence that runs from now on: its own pin holds its prefix.
func (fs *fetches) admitted(q *sequence) {
	f := q.fetch
	if f == nil {
		return
	}
	fs.unpin(q)
	if !q.seenSlot {
		for _, x := range f.spans {
			n := max(min(x.hi, q.computed, q.prompt)-x.lo, 0)
			f.cached[x.tier] += n
			fs.hits[x.tier] += uint64(n)
		}
		fs.used(f.extents, q.computed)
	}
	f.extents, f.spans, f.parts, f.tried, f.followed = nil, nil, nil, false, false
}

// unpin unpins the prefix that q has fetched. It stays cached while no page is needed.
func (fs *fetches) unpin(q *sequence) {
	if q.fetch != nil && q.fetch.pin != radixcache.Root {
		fs.room.cache.Unpin(q.fetch.pin)
		q.fetch.pin = radixcache.Root
	}
	if i := slices.Index(fs.keepers, q); i >= 0 {
		fs.keepers = slices.Delete(fs.keepers, i, i+1)
	}
}

// leave ends the fetch of a sequence that leaves the queue.
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

// stop ends all fetches, and lets go of what they have brought.
func (fs *fetches) stop() {
	for len(fs.waiting) > 0 {
		fs.goOn(fs.waiting[0])
	}
	for len(fs.keepers) > 0 {
		fs.unpin(fs.keepers[0])
	}
}

// drop ends all moves as failed: the device is lost, or the scheduler is emptied.
func (fs *fetches) drop() {
	for len(fs.waiting) > 0 {
		fs.letGo(fs.waiting[0])
	}
	fs.tiers.drop()
}

// nextWake is when the next fetch is given up, or the next conversation idle.
func (fs *fetches) nextWake() (at time.Duration, some bool) {
	if len(fs.idle) > 0 {
		at, some = fs.idle[0].at, true
	}
	for _, q := range fs.waiting {
		if !some || q.fetch.until < at {
			at, some = q.fetch.until, true
		}
	}
	return at, some
}
