package scheduler

import (
	"time"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/radixcache"
)

// maxPageRoom bounds the output tokens for which a sequence's page list has room from the
// start: 256 pages of 16. Longer lists grow by append.
const maxPageRoom = 4096

// hold gives q pages for all its tokens, on the prefix f: it pins the pages that match
// whole, and takes idle or evicted pages for the rest. The caller knows that these can be
// had. If f has a boundary within a page, hold adds to p a copy of that page into q's first
// own page, from the tree or from the running sequence that still writes to it, so that
// only new tokens are computed.
//
// For example, with pages of 16, a prompt of 120 tokens and 100 in common with a cached
// one: 6 pages (96 tokens) are shared, 2 are held, 4 tokens are copied into the first of
// these, and rows compute [100, 120).
func (s *Scheduler) hold(p *Plan, q *sequence, f *found) {
	m, from, boundary := f.match, f.from, f.boundary
	shared := m.Tokens / s.info.PageTokens
	own := kv.CeilPages(len(q.tokens), s.info.PageTokens) - shared
	pages := make([]kv.PageID, 0, kv.CeilPages(len(q.tokens)+min(q.limit-q.outputTokens(), maxPageRoom), s.info.PageTokens))
	pin, source := radixcache.Root, kv.NoPage
	if s.cache != nil {
		pages = s.cache.AppendPages(m, pages)
		switch {
		case from != nil:
			source = from.table.pages[shared]
		case boundary > 0:
			source = s.cache.PartialPage(m)
		}
		// Pinned first, so that the match is not evicted to make room for q itself.
		pin = s.cache.Pin(m)
		rankPrefix(s.cache, pin, q)
		if from == nil && boundary > 0 {
			s.cache.PinNode(m.Partial.Node)
		}
	}
	if short := own - s.room.lease.IdlePages(); short > 0 {
		s.room.evict(short)
	}
	if from == nil && boundary > 0 {
		s.cache.Unpin(m.Partial.Node)
	}
	q.table.pin, q.table.shared, q.computed = pin, shared, m.Tokens+boundary
	q.done, q.cache.matched, q.rows.sampled = q.computed, q.computed, 0
	q.cache.borrowed, q.cache.vouches, q.cache.doubtful, q.cache.text = boundary, false, false, 0
	if s.cache != nil && q.cache.epoch != s.cache.Epoch() {
		q.cache.epoch, q.cache.ownFrom = s.cache.Epoch(), noTokens
	}
	// q.first never rises: after a preemption, q finds in the cache tokens that it computed
	// itself before, and these are still its own work.
	q.cache.ownFrom = min(q.cache.ownFrom, q.cache.matched)
	q.table.pages = s.room.hold(own, pages)
	if boundary > 0 {
		// The source may be evicted from here on: copies run before rows and batches in
		// order, so the next owner of the page writes after this copy.
		p.Batch.Copies = append(p.Batch.Copies, engine.PageCopy{
			Src: source, Dst: q.table.pages[q.table.shared], Tokens: int32(boundary),
		})
	}
}

// start moves q from the queue to a slot and adds the slot's new owner to p. q has its
// pages already, see hold. At its first admission, the queue timeout of q ends and its
// tenant is charged. From the first admission of any sample on, no sample of the request
// can be displaced.
func (s *Scheduler) start(now time.Duration, p *Plan, q *sequence) {
	s.fetches.leave(q)
	s.queue.dequeue(q)
	for _, o := range q.group.samples {
		s.queue.withdraw(o)
	}
	s.queue.admissions++
	q.ownTokens()
	q.place, q.target, q.wait.unfit = running, len(q.tokens), false
	s.running.all = append(s.running.all, q)
	s.running.prefilling = append(s.running.prefilling, q)
	q.group.tenant.Running++
	q.table.slot, s.room.slots = s.room.slots[len(s.room.slots)-1], s.room.slots[:len(s.room.slots)-1]
	q.table.since = p.Batch.Seq
	p.Batch.Binds = append(p.Batch.Binds, q.bindOf())
	q.bill.mark(now, Matched, q.computed)
	if s.fetches != nil {
		s.fetches.admitted(q)
		s.admittedTurn(q)
	}
	if q.expiry > 0 && !q.bill.seenSlot {
		defer s.expiries.file(q) // after seenSlot is set: the queue timeout no longer counts
	}
	if !q.bill.seenSlot {
		q.bill.seenSlot, q.bill.queued, q.bill.cachedTokens = true, now-q.bill.arrived, min(q.computed, q.prompt)
		s.accounts.Admit(q.group.tenant, q.prompt-q.bill.cachedTokens, q.bill.cachedTokens)
		s.metrics.PromptTokens += uint64(q.prompt)
		s.metrics.CachedTokens += uint64(q.bill.cachedTokens)
	}
}
