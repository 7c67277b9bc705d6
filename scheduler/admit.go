package scheduler

import (
	"time"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/radixcache"
)

// admit starts waiting sequences in the policy's order while the budget, the
// slots and the pages last. One that follows a prompt in flight is passed over;
// one that does not fit ends the pass, so that smaller ones behind it don't
// starve it.
func (s *Scheduler) admit(now time.Duration, p *Plan, budget int) {
	if budget == 0 || len(s.slots) == 0 || len(s.waiting) == 0 {
		return
	}
	for _, q := range s.candidates() {
		if budget == 0 || len(s.slots) == 0 {
			return
		}
		var m radixcache.Match
		if s.cache != nil {
			m = s.lookup(q)
		}
		if s.follows(q, m.Tokens+m.Partial.Tokens) {
			continue
		}
		if !s.place(p, q, m) {
			return
		}
		s.start(now, p, q)
		n := min(budget, q.target-q.computed)
		p.add(q, n, s.info.PageTokens)
		budget -= n
	}
}

// place finds pages for all tokens that q has: the matched ones are pinned, the
// rest is held. A partly matched boundary page is copied into the first own one,
// so that only what is really new gets computed. It changes nothing and returns
// false if the pages are not there.
func (s *Scheduler) place(p *Plan, q *sequence, m radixcache.Match) bool {
	shared := m.Tokens / s.info.PageTokens
	own := kv.CeilPages(len(q.tokens), s.info.PageTokens) - shared
	if !s.mayRoom(own + len(s.running)) {
		return false // before the Pin, which counts as a reuse and may split a node
	}
	pin, source := radixcache.Root, kv.NoPage
	q.pages = q.pages[:0]
	if s.cache != nil {
		q.pages = s.cache.AppendPages(m, q.pages)
		if m.Partial.Tokens > 0 {
			source = s.cache.PartialPage(m)
		}
		// Pinned first: what is matched must not be evicted to make its own room.
		pin = s.cache.Pin(m)
		if m.Partial.Tokens > 0 {
			s.cache.PinNode(m.Partial.Node)
		}
	}
	// A page for each running sequence to grow into, or the newcomer would be
	// preempted again at once.
	ok := s.room(own + len(s.running))
	if m.Partial.Tokens > 0 {
		s.cache.Unpin(m.Partial.Node)
		if !ok {
			// The copy's source may be the very page that is missing.
			m.Partial = radixcache.Partial{}
			ok = s.room(own + len(s.running))
		}
	}
	if !ok {
		q.pages = q.pages[:0]
		if s.cache != nil {
			s.cache.Unpin(pin)
		}
		return false
	}
	q.pin, q.shared, q.computed = pin, shared, m.Tokens+m.Partial.Tokens
	q.pages, _ = s.pages.lease.Hold(own, q.pages)
	if m.Partial.Tokens > 0 {
		// The source may be evicted from here on: copies run before rows and in
		// order, so whoever gets the page next writes after this has read.
		p.Batch.Copies = append(p.Batch.Copies, engine.PageCopy{
			Src: source, Dst: q.pages[q.shared], Tokens: int32(m.Partial.Tokens),
		})
	}
	return true
}

// start moves q from the queue to a slot.
func (s *Scheduler) start(now time.Duration, p *Plan, q *sequence) {
	s.dequeue(q)
	s.running = append(s.running, q)
	q.slot, s.slots = s.slots[len(s.slots)-1], s.slots[:len(s.slots)-1]
	q.admitted, q.target = true, len(q.tokens)
	bind := engine.SlotBind{Slot: q.slot, Sampling: q.req.Sampling}
	if q.req.Sampling.Penalised() {
		bind.Prompt, bind.Output = q.tokens[:q.prompt], q.tokens[q.prompt:]
	}
	p.Batch.Binds = append(p.Batch.Binds, bind)
	if !q.seenSlot {
		q.seenSlot, q.queued, q.cachedTokens = true, now-q.arrived, q.computed
		s.metrics.PromptTokens += uint64(q.prompt)
		s.metrics.CachedTokens += uint64(q.cachedTokens)
	}
}
