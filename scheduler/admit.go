package scheduler

import (
	"slices"
	"time"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/radixcache"
)

// maxTries bounds how many candidates a pass looks at, so that a step costs the
// same however long the queue is. The next step goes on where it matters: those
// that were parked are out of the way.
const maxTries = 64

// admit starts waiting sequences in the policy's order while the budget, the
// slots and the pages last. They get their rows from prefill, among those that
// were admitted before.
//
// A candidate that follows a prompt in flight is parked. One that does not fit is
// overtaken by others, MaxBypass times: then it blocks the line, and all that comes
// free is its own.
func (s *Scheduler) admit(now time.Duration, p *Plan, budget int) {
	if budget == 0 || s.queue.size == 0 || len(s.slots) == 0 {
		return
	}
	s.expected = -1
	if b := s.blocked; b != nil && b.lane != nil && !s.queue.shut(b.lane) && !s.try(now, p, b) {
		return // a blocked one that waits for others than room stops nobody
	}
	for range maxTries {
		if len(s.slots) == 0 || !s.hasBudget(budget) {
			break
		}
		q := s.candidate()
		if q == nil {
			break
		}
		was := s.blocked
		if s.try(now, p, q) {
			s.metrics.Bypasses += uint64(len(s.aside))
			s.reserveFor(s.aside)
		}
		if s.blocked != was && s.blocked != nil {
			break
		}
	}
	for i, q := range s.aside {
		if q.lane == nil && q.place == inLine {
			s.queue.enterLane(q)
		}
		s.aside[i] = nil
	}
	s.aside = s.aside[:0]
}

// candidate is whom the policy takes next, by now: what is cached of it may have
// been evicted since it was ranked.
func (s *Scheduler) candidate() *sequence {
	w := &s.queue
	w.owed = slices.ContainsFunc(s.aside, func(q *sequence) bool { return q.place == inLine && q.tenant.deficit > 0 })
	if w.needsOldest() && (w.admissions+1)%uint64(s.cfg.OldestEvery) == 0 {
		if q := w.longestWaiting(); q != nil {
			w.lookup(q)
			return q
		}
	}
	for range maxTries {
		q := w.best(s.work)
		if q == nil {
			return nil
		}
		was := q.cached
		w.lookup(q)
		if !w.interested(q) || q.cached+w.index.blockTokens > was {
			return q
		}
		w.rerank(q) // it was ranked too high
	}
	return w.best(s.work)
}

// hasBudget tells whether a newcomer would get tokens in this step, or soon: of the
// prompts that are being computed all but the oldest, which has a share of its
// own, take less than the rest. Long ones take one chunk together.
func (s *Scheduler) hasBudget(budget int) bool {
	if len(s.filling) == 0 {
		return true
	}
	if len(s.filling) >= s.cfg.MaxPrefilling {
		return false
	}
	rest := budget - oldestShare(budget)
	long := s.cfg.ChunkTokens
	for i, q := range s.filling {
		switch cost := min(s.cfg.costOf(q.target-q.computed, q.computed), s.cfg.ChunkTokens); {
		case i == 0 || !q.prefilling():
		case s.cfg.isLong(q.computed, q.target):
			if !s.cfg.isLong(s.filling[0].computed, s.filling[0].target) { // else it has its part of that chunk
				rest -= long
				long = 0
			}
		default:
			rest -= cost
		}
	}
	return rest > 0
}

// try starts q if it can, or puts it out of the way of the pass.
func (s *Scheduler) try(now time.Duration, p *Plan, q *sequence) bool {
	m, from, boundary := s.found(q)
	if leader, until := s.leaderOf(q, m.Tokens+boundary); leader != nil {
		s.park(q, leader, until)
		return false
	}
	if s.queue.shutOut(q) { // it is long, as much of it was evicted
		s.queue.rerank(q)
		return false
	}
	if !s.settleIn(p, q, m, from, boundary, s.reserve(q)) {
		s.bypass(q)
		return false
	}
	s.start(now, p, q)
	if s.expected >= 0 {
		s.expected += s.growth(q)
	}
	s.queue.noLong = s.longPrompts() >= maxLong
	return true
}

// found is what there is of q: whole pages in the cache, and tokens of a boundary
// page there or, if from is set, of a running sequence's last page.
func (s *Scheduler) found(q *sequence) (m radixcache.Match, from *sequence, boundary int) {
	m = s.queue.lookup(q)
	from, boundary = s.openPage(q, m)
	return m, from, boundary
}

// bypass lets others be admitted before q, which does not fit: MaxBypass of them since
// it was first found so.
func (s *Scheduler) bypass(q *sequence) {
	if q == s.blocked {
		return
	}
	if !q.unfit {
		q.unfit, q.unfitAt = true, s.queue.admissions
	}
	s.queue.leaveLane(q)
	s.aside = append(s.aside, q)
	s.reserveFor(s.aside[len(s.aside)-1:])
}

// reserveFor makes the first of those who were bypassed often enough block the line.
func (s *Scheduler) reserveFor(unfit []*sequence) {
	for _, q := range unfit {
		if s.blocked == nil && q.place == inLine && s.queue.admissions-q.unfitAt >= uint64(s.cfg.MaxBypass) && !s.queue.shutOut(q) {
			s.blocked = q
		}
	}
}

// settleIn finds pages for all tokens that q has: the matched ones are pinned, the
// rest is held. A partly matched boundary page is copied into the first own one,
// from the tree or from the running sequence that still writes to it, so that only
// what is really new gets computed. reserve is what running sequences are
// expected to need beside. It changes nothing and returns false if the pages are
// not there.
func (s *Scheduler) settleIn(p *Plan, q *sequence, m radixcache.Match, from *sequence, boundary, reserve int) bool {
	shared := m.Tokens / s.info.PageTokens
	own := kv.CeilPages(len(q.tokens), s.info.PageTokens) - shared
	if !s.mayRoom(own + reserve) {
		return false // before the Pin, which counts as a reuse and may split a node
	}
	pages := make([]kv.PageID, 0, kv.CeilPages(len(q.tokens)+min(q.limit-q.outputTokens(), 4096), s.info.PageTokens))
	pin, source := radixcache.Root, kv.NoPage
	if s.cache != nil {
		pages = s.cache.AppendPages(m, pages)
		switch {
		case from != nil:
			source = from.pages[shared]
		case boundary > 0:
			source = s.cache.PartialPage(m)
		}
		// Pinned first: what is matched must not be evicted to make its own room.
		pin = s.cache.Pin(m)
		if from == nil && boundary > 0 {
			s.cache.PinNode(m.Partial.Node)
		}
	}
	ok := s.mayRoom(own+reserve) && s.room(own)
	if from == nil && boundary > 0 {
		s.cache.Unpin(m.Partial.Node)
		if !ok {
			// The copy's source may be the very page that is missing.
			boundary = 0
			ok = s.mayRoom(own+reserve) && s.room(own)
		}
	}
	if !ok {
		if s.cache != nil {
			s.cache.Unpin(pin)
		}
		return false
	}
	q.pin, q.shared, q.computed = pin, shared, m.Tokens+boundary
	q.done, q.matched, q.sampled = q.computed, q.computed, 0
	if s.cache != nil {
		q.epoch = s.cache.Epoch()
	}
	q.pages, _ = s.pages.lease.Hold(own, pages)
	if boundary > 0 {
		// The source may be evicted from here on: copies run before rows and in
		// order, so whoever gets the page next writes after this has read.
		p.Batch.Copies = append(p.Batch.Copies, engine.PageCopy{
			Src: source, Dst: q.pages[q.shared], Tokens: int32(boundary),
		})
	}
	return true
}

// start moves q from the queue to a slot.
func (s *Scheduler) start(now time.Duration, p *Plan, q *sequence) {
	s.dequeue(q)
	s.queue.admissions++
	q.ownTokens()
	q.place, q.target, q.unfit = running, len(q.tokens), false
	s.running = append(s.running, q)
	s.filling = append(s.filling, q)
	q.tenant.running++
	q.slot, s.slots = s.slots[len(s.slots)-1], s.slots[:len(s.slots)-1]
	p.Batch.Binds = append(p.Batch.Binds, q.bindOf())
	q.mark(now, Matched, q.computed)
	if q.expiry > 0 && !q.seenSlot {
		defer s.expect(q) // no queue timeout any more
	}
	if !q.seenSlot {
		q.seenSlot, q.queued, q.cachedTokens = true, now-q.arrived, min(q.computed, q.prompt)
		q.tenant.serve(q.prompt - q.cachedTokens)
		s.metrics.PromptTokens += uint64(q.prompt)
		s.metrics.CachedTokens += uint64(q.cachedTokens)
	}
}
