package scheduler

import "github.com/coppice-llm/coppice/mempool/tiering"

// Chunks of a prompt are in the cache before their request has sampled, and wrong KV shows
// only in sampled logits. So when a request fails for its logits, the KV that it has
// published is distrusted. Nodes that no request holds are removed; the others are hidden
// from new requests until a holder has sampled a token from them, or all holders have left.

// distrust is called when q fails because of its logits. It hides the KV that q has
// computed, and copies of that KV, in the cache and in running sequences that do not vouch
// for theirs. A cached node that shares more tokens with q than q had found at admission
// was added after q was admitted, so distrust rarely hides the work of another request.
//
// For example, q found 64 tokens and computed up to 200. Cached nodes that agree with q
// beyond token 64 are marked, whichever request computed them, since their pages may be
// copies of q's.
func (x *prefixes) distrust(q *sequence) {
	if x.cache == nil || x.flushedSince(q) || q.cache.ownFrom == noTokens {
		return
	}
	x.cache.Distrust(q.key(len(q.tokens)), q.cache.ownFrom)
	q.cache.vouches = false
	for _, o := range x.running.all {
		switch {
		case o.cache.vouches:
			x.cache.Trust(o.table.pin)
		case o != q && o.cache.borrowed > 0 && o.cache.matched > q.cache.ownFrom && q.sharable(o, x.room.pageTokens) > q.cache.ownFrom &&
			q.shares(o, 0, o.tokens[:o.cache.matched], q.tokens) > q.cache.ownFrom:
			o.cache.doubtful = true
		}
	}
	x.discardBelow(q)
	x.purge()
}

// discardBelow drops the KV of q from the lower tiers: the extents that q has computed a part of,
// each by itself, as writes of them may be in flight, with all that continue them; and others that
// hold some of their pages, such as tails of q's earlier stays and what other requests have read of
// q's KV and stored. It does not wait until the tree gives up its copy: a marked node with private
// spaces below it stays, and what capacity evicts would be written to a lower tier.
func (x *prefixes) discardBelow(q *sequence) {
	if x.fetches == nil {
		return
	}
	x.fetches.distrust(q)
	for _, e := range x.fetches.tiers.layout.AppendExtents(nil, q.req.Namespace, q.tokens, q.req.Media) {
		if e.Start+len(e.Tokens) <= q.cache.ownFrom {
			continue
		}
		for _, k := range x.fetches.tiers.book.Parts(&e, nil) {
			x.fetches.tiers.discard(k)
		}
		x.fetches.tiers.discard(e.Key)
	}
}

// distrust gives up those parts of fetches that may hold wrong KV of q: KV of tokens after
// q.cache.ownFrom that the fetching sequence has in common with q, and what continues it. The book
// discards what is in the tiers and cancels reads; but a part may have arrived, or arrive in
// spite of that, while it waits for an earlier one. The fetch ends at the gap.
func (fs *fetches) distrust(q *sequence) {
	for _, r := range fs.waiting {
		if r.req.Namespace != q.req.Namespace || q.shares(r, 0, r.tokens, q.tokens) <= q.cache.ownFrom {
			continue
		}
		for i := range r.fetch.parts[r.fetch.next:] {
			p := &r.fetch.parts[r.fetch.next+i]
			// A read that has not begun never will: the book takes it out of its queue.
			if p.end() > q.cache.ownFrom && (fs.tiers.reading[p.Move] == nil || fs.tiers.book.InFlight(p.Move)) {
				fs.giveUp(r, p)
			}
		}
	}
}

// vouch notes that q has sampled from all KV that it holds, so that the KV is sound: a row
// with wrong KV would have failed for its logits. The prompt may now be written to lower
// tiers.
func (x *prefixes) vouch(q *sequence) {
	q.cache.vouches, q.cache.doubtful = true, false
	if x.cache != nil {
		x.cache.Trust(q.table.pin)
	}
	if x.fetches != nil && x.cfg.Tiers.Mode == tiering.Through && q.done >= q.target && !x.flushedSince(q) {
		x.fetches.tiers.computed(q, q.done, false)
	}
}

// purge removes the distrusted nodes that no request holds, and frees their pages.
func (x *prefixes) purge() {
	if x.cache != nil && x.cache.Distrusted() > 0 {
		x.room.reclaimAs(x.cache.Purge(x.room.freed[:0]), tiering.Discarded)
	}
}

// doubtful reports whether q must not share the KV of its first tokens, as many as tokens
// says. It must not if q may have read wrong KV, or if the cache holds the same tokens on
// distrusted pages: publishing would exchange q's sound pages for these.
func (x *prefixes) doubtful(q *sequence, tokens int) bool {
	return q.cache.doubtful || x.cache.Distrusted() > 0 && x.cache.Match(q.key(tokens)).Distrusted
}
