package scheduler

import "github.com/coppice-llm/coppice/mempool/tiering"

// Chunks of a prompt go to the cache before their request has sampled, and wrong KV shows only
// in sampled logits. So when a request fails for its logits, the KV that it has published is
// distrusted. Nodes that no request holds are removed; the others are hidden from new requests
// until a holder has sampled a token from them, or all holders have left.

// distrust hides the KV that q has computed, and copies of it, in the cache and with running
// sequences that do not vouch for it. A node that shares more tokens with q than q had found
// was added after q was admitted, so distrust rarely hides the work of another request.
func (x *prefixes) distrust(q *sequence) {
	if x.cache == nil || x.flushedSince(q) || q.first == noTokens {
		return
	}
	x.cache.Distrust(q.key(len(q.tokens)), q.first)
	q.vouches = false
	for _, o := range x.running.all {
		switch {
		case o.vouches:
			x.cache.Trust(o.pin)
		case o != q && o.borrowed > 0 && o.matched > q.first && o.req.Namespace == q.req.Namespace &&
			q.shares(o, 0, o.tokens[:o.matched], q.tokens) > q.first:
			o.doubtful = true
		}
	}
	x.purge()
	x.discardBelow(q)
}

// discardBelow drops KV of q from the lower tiers that has left the device since q was
// preempted.
func (x *prefixes) discardBelow(q *sequence) {
	if x.tiers == nil {
		return
	}
	for _, e := range x.tiers.layout.AppendExtents(nil, q.req.Namespace, q.tokens, q.req.Media) {
		if e.Start+len(e.Tokens) > q.first && x.tiers.residents[e.Key] == nil {
			x.tiers.policy.Discard(e.Key) // with all that continues it
			break
		}
	}
	if q.fetch == nil {
		return
	}
	for _, k := range q.fetch.left { // tails that it has outgrown since
		if e, known := x.tiers.policy.Extent(k); known && e.Start+len(e.Tokens) > q.first && x.tiers.residents[k] == nil {
			x.tiers.policy.Discard(k)
		}
	}
}

// vouch notes that q has sampled from all that it holds: the KV is sound.
func (x *prefixes) vouch(q *sequence) {
	q.vouches, q.doubtful = true, false
	if x.cache != nil {
		x.cache.Trust(q.pin)
	}
	if x.tiers != nil && x.cfg.Tiers.Mode == tiering.Through && q.done >= q.target && !x.flushedSince(q) {
		x.tiers.computed(q, q.done, false)
	}
}

// purge removes distrusted nodes that no request holds.
func (x *prefixes) purge() {
	if x.cache != nil && x.cache.Distrusted() > 0 {
		x.room.takeBack(x.cache.Purge(x.room.freed[:0]), discarded)
	}
}

// doubtful reports whether q can't share what it computes: it may stand on wrong KV, or the
// cache has the same tokens in pages that are distrusted, and would exchange q's for them.
func (x *prefixes) doubtful(q *sequence, tokens int) bool {
	return q.doubtful || x.cache.Distrusted() > 0 && x.cache.Match(q.key(tokens)).Distrusted
}
