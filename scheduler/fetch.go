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

// fetch is what a waiting sequence has to do with the tiers below the device: the extents of
// its prompt, and the reads of those that the device lacks.
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
	last     mempool.Key       // the last extent of what q left in the cache
}

// part is one read of a fetch.
type part struct {
	tiering.Part
	pages   []kv.PageID // held from the read's end until they are adopted
	arrived bool
}

// arrival is a Read whose pages are held.
type arrival struct {
	q     *sequence // nil: nobody waits for it any more
	pages []kv.PageID
	begun bool
}

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

// seek begins to fetch what lower tiers have of q after m, if that is faster than computing
// it and there is room: then q waits beside the queue. ahead says that it is not q's turn
// yet, so that less room is taken for it.
func seek(s *Scheduler, now time.Duration, q *sequence, m radixcache.Match, ahead bool) bool {
	t := s.tiers
	if t == nil || q.wantsPrompt() || m.Distrusted {
		return false
	}
	f := q.fetched()
	if f.tried {
		return false
	}
	if f.extents == nil {
		f.extents = t.layout.AppendExtents(nil, q.req.Namespace, q.tokens[:q.matchable()], q.req.Media)
	}
	i := m.Tokens / t.layout.ExtentTokens()
	if i >= len(f.extents) {
		return false
	}
	tokens := t.policy.Worth(f.extents[i:], m.Tokens)
	pages := (f.extents[i].Start + tokens - m.Tokens) / t.layout.PageTokens
	if tokens == 0 || pages <= 0 || ahead && (t.held+pages > s.info.NumPages/4 || s.queue.blocked != nil) {
		return false
	}
	if !s.room.spares(m, pages, s.reserve(q)) {
		return false
	}
	f.pin, f.adopted, f.tried = s.cache.Keep(m), m.Tokens, true // what comes before must not make room
	if !s.room.take(pages) {
		panic(fmt.Sprintf("scheduler: %d pages can't be had for a fetch of request %d", pages, q.req.ID))
	}
	if !t.begin(now, q, f.extents[i:]) {
		yield(s, q)
		return false
	}
	s.queue.leaveLane(q)
	q.place = fetching
	s.metrics.Fetches++
	return true
}

// fetchFirst puts q, whose turn it is, beside the queue if what lower tiers have of it is
// on its way, for itself or for another one, or is fetched now.
func fetchFirst(s *Scheduler, now time.Duration, q *sequence, f *found) bool {
	if leader, until := fetchOf(s, q, f.match.Tokens+f.boundary); leader != nil {
		s.follow(q, leader, until)
		return true
	}
	if q.fetch != nil && q.fetch.adopted > f.match.Tokens { // it pins what it can't use
		yield(s, q)
		*f = s.find(q)
	}
	if seek(s, now, q, f.match, false) {
		return true
	}
	*f = s.find(q) // room may have been made
	return false
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

// begin has the policy read what it has of xs, and holds pages for it. It reports whether
// that can be: making room may have cost what was to be read.
func (t *tiers) begin(now time.Duration, q *sequence, xs []mempool.Extent) bool {
	f, size := q.fetch, t.layout.PageTokens
	f.parts, f.next, f.until = f.parts[:0], 0, 0
	t.fetches = append(t.fetches, q)
	good := true
	for _, p := range t.policy.Want(now, q.fetchID(), xs, f.adopted, nil) {
		pages := make([]kv.PageID, 0, p.Tokens/size)
		for at := p.Start; at < p.Start+p.Tokens; at += size {
			if at < f.adopted {
				pages = append(pages, kv.NoPage)
			}
		}
		f.parts = append(f.parts, part{Part: p})
		if t.reading[p.Move] != nil {
			good = false // another one's
			break
		}
		if pages, good = t.room.lease.Hold(p.Tokens/size-len(pages), pages); !good {
			break
		}
		t.reading[p.Move] = &arrival{q: q, pages: pages}
		n := count(pages)
		t.held, t.coming = t.held+n, t.coming+n
		f.until = max(f.until, p.Deadline)
	}
	if good = good && len(f.parts) > 0; !good {
		t.letGo(q)
	}
	return good
}

// count is how many of pages are some.
func count(pages []kv.PageID) (n int) {
	for _, p := range pages {
		if p != kv.NoPage {
			n++
		}
	}
	return n
}

// release gives pages back that were held for a Read.
func (t *tiers) release(pages []kv.PageID) {
	for i, p := range pages {
		if p != kv.NoPage {
			t.room.lease.Drop(pages[i : i+1])
			t.held--
		}
	}
}

// read takes the ending of a Read.
func (t *tiers) read(id tiering.MoveID, a *arrival, good bool) {
	delete(t.reading, id)
	t.coming -= count(a.pages)
	if a.q == nil || !good {
		t.release(a.pages)
		return
	}
	parts := a.q.fetch.parts
	i := slices.IndexFunc(parts, func(p part) bool { return p.Move == id })
	parts[i].pages, parts[i].arrived = a.pages, true
}

// settleFetches adopts what has arrived, and lets those go on for whom nothing more comes.
func settleFetches(s *Scheduler) {
	t := s.tiers
	for i := 0; i < len(t.fetches); i++ {
		q := t.fetches[i]
		f := q.fetch
		adopt(s, q)
		if _, waiting := t.policy.Arrived(q.fetchID()); waiting && t.now < f.until {
			if len(q.followers) > 0 {
				s.releaseTo(q, f.adopted, false)
			}
			continue
		}
		goOn(s, q)
		i--
	}
}

// goOn puts a sequence back into the queue that has fetched what it could.
func goOn(s *Scheduler, q *sequence) {
	s.tiers.letGo(q)
	s.releaseTo(q, q.fetch.adopted, true)
	if q.fetch.pin != radixcache.Root {
		s.tiers.keepers = append(s.tiers.keepers, q)
	}
	if s.queue.ranksByCache(q) {
		s.queue.lookup(q)
	}
	s.queue.requeue(q)
}

// letGo ends the fetch of q but for what it has adopted: it gives back pages that have come
// after a gap, and those of reads that have not begun. The others are given back when
// their Read ends.
func (t *tiers) letGo(q *sequence) {
	i := slices.Index(t.fetches, q)
	if i < 0 {
		return
	}
	t.fetches = slices.Delete(t.fetches, i, i+1)
	f := q.fetch
	for _, p := range f.parts[f.next:] {
		if p.arrived {
			t.release(p.pages)
			continue
		}
		a := t.reading[p.Move]
		if a == nil || a.q != q {
			continue
		}
		if a.q = nil; !a.begun {
			delete(t.reading, p.Move)
			t.coming -= count(a.pages)
			t.release(a.pages)
		}
	}
	f.parts, f.next = nil, 0
	t.policy.Forget(q.fetchID())
	t.collect()
}

// adopt puts what has come without a gap into the tree. Where a medium is cut by the end of
// a part, that waits for the next one.
func adopt(s *Scheduler, q *sequence) {
	t, f, size := s.tiers, q.fetch, s.info.PageTokens
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
		if s.cache.Distrusted() > 0 && s.cache.Match(key).Distrusted {
			return
		}
		lent := s.room.lent[:0]
		for len(lent) < f.parts[f.next].Start/size {
			lent = append(lent, kv.NoPage) // the tree's own, which it does not look at
		}
		for i := f.next; i <= upto; i++ {
			lent = append(lent, f.parts[i].pages...)
			t.held -= count(f.parts[i].pages)
			f.parts[i].pages = nil
		}
		pin, freed := s.cache.Extend(f.pin, key, lent, s.room.freed[:0])
		s.room.reclaim(freed)
		for i := f.adopted / size; i < len(lent); i++ {
			if s.room.lease.Held(lent[i]) {
				s.room.lease.Publish(lent[i : i+1])
			}
		}
		f.adoptedTo(t, f.next, upto, end, lent)
		s.room.lent, f.pin = lent[:0], pin
		s.queue.published(q, f.parts[f.next].Start, end)
		f.next, f.adopted = upto+1, end
	}
}

// end is the first token after a part.
func (p *part) end() int { return p.Start + p.Tokens }

// adoptedTo notes that parts [lo, hi] stand in the tree, on pages.
func (f *fetch) adoptedTo(t *tiers, lo, hi, end int, pages []kv.PageID) {
	for i := lo; i <= hi; i++ {
		p := &f.parts[i]
		f.spans = append(f.spans, span{p.From, max(p.Start, f.adopted), p.end()})
		x := f.extents[p.Start/t.layout.ExtentTokens()]
		if len(x.Tokens) == p.Tokens && !slices.Contains(pages[p.Start/t.layout.PageTokens:p.end()/t.layout.PageTokens], kv.NoPage) {
			t.settle([]mempool.Extent{x}, pages)
		}
	}
}

// admitted ends what a sequence has to do with lower tiers before it runs: its own pins
// hold what it found. first says that it has not been admitted before.
func (t *tiers) admitted(s *Scheduler, q *sequence, first bool) {
	f := q.fetch
	if f == nil {
		return
	}
	yield(s, q)
	if first {
		for _, x := range f.spans {
			n := max(min(x.hi, q.computed, q.prompt)-x.lo, 0)
			f.cached[x.tier] += n
			t.hits[x.tier] += uint64(n)
		}
		t.used(f.extents, q.computed)
	}
	f.extents, f.spans, f.parts, f.tried, f.followed = nil, nil, nil, false, false
}

// used tells the policy that a request uses the extents within its first so many tokens.
func (t *tiers) used(xs []mempool.Extent, tokens int) {
	for i := range xs {
		if xs[i].Start+len(xs[i].Tokens) <= tokens {
			t.policy.Used(t.now, []mempool.Key{xs[i].Key})
		}
	}
	t.collect()
}

// yield lets go of what q has fetched: it stays cached while nobody needs the room.
func yield(s *Scheduler, q *sequence) {
	if q.fetch != nil && q.fetch.pin != radixcache.Root {
		s.cache.Unpin(q.fetch.pin)
		q.fetch.pin = radixcache.Root
	}
	if i := slices.Index(s.tiers.keepers, q); i >= 0 {
		s.tiers.keepers = slices.Delete(s.tiers.keepers, i, i+1)
	}
}

// leaveFetch ends all that q, which leaves the queue for good, has to do with a fetch.
func leaveFetch(s *Scheduler, q *sequence) {
	if s.tiers == nil || q.fetch == nil {
		return
	}
	if q.place == fetching {
		s.tiers.letGo(q)
		s.releaseTo(q, q.fetch.adopted, true)
		q.place = waiting
	}
	yield(s, q)
}

// prefetch looks for prefixes to fetch of those that will be admitted next.
func prefetch(s *Scheduler, now time.Duration) {
	t := s.tiers
	if t == nil || s.queue.size == 0 || s.queue.blocked != nil {
		return
	}
	s.room.reserved = -1
	for range maxAhead {
		if len(t.fetches) >= maxAhead {
			break
		}
		q := s.queue.best(s.work)
		if q == nil {
			break
		}
		if q.fetch != nil && q.fetch.tried || !seek(s, now, q, s.queue.lookup(q), true) {
			s.queue.leaveLane(q)
			s.queue.skipped = append(s.queue.skipped, q)
		}
	}
	for i, q := range s.queue.skipped {
		s.queue.enterLane(q)
		s.queue.skipped[i] = nil
	}
	s.queue.skipped = s.queue.skipped[:0]
}

// fetchOf finds the sequence whose fetch q should wait for, nil if none: what that brings
// is at least a page more of q's prefix than q finds now. It waits so once.
func fetchOf(s *Scheduler, q *sequence, have int) (leader *sequence, until int) {
	t := s.tiers
	if t == nil || len(t.fetches) == 0 || q.fetch != nil && (q.fetch.followed || q.fetch.tried) {
		return nil, 0
	}
	most := q.tokens[:q.matchable()]
	for _, r := range t.fetches {
		known := r.tokens[:r.fetch.parts[len(r.fetch.parts)-1].end()]
		if r.req.Namespace != q.req.Namespace || have+s.info.PageTokens > min(len(known), len(most)) || known[have] != most[have] {
			continue
		}
		if n := q.shares(r, 0, known, most); n >= have+s.info.PageTokens && n > until {
			leader, until = r, n
		}
	}
	if leader != nil {
		q.fetched().followed = true
	}
	return leader, until - until%s.info.PageTokens
}
