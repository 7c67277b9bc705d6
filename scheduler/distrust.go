package scheduler

import "github.com/coppice-llm/coppice/mempool/tiering"

// Chunks of a prompt go to the cache before their request has sampled: that their KV is wrong
// shows only in the logits that are sampled from it. So when a request fails for its logits,
// what it has put into the cache is distrusted: gone where nobody holds it, and else hidden
// from new requests until one of the holders has sampled a token from it, or all have left.

// distrust hides what q has computed, and what may be copied from it, in the cache and with
// others that can't vouch for it. A node that shares more tokens with q than q had found
// came after q: so distrust rarely hides the work of another request.
func distrust(s *Scheduler, q *sequence) {
	if s.cache == nil || s.flushedSince(q) || q.first == noTokens {
		return
	}
	s.cache.Distrust(q.key(len(q.tokens)), q.first)
	q.vouches = false
	for _, o := range s.running.all {
		switch {
		case o.vouches:
			s.cache.Trust(o.pin)
		case o != q && o.borrowed > 0 && o.matched > q.first && o.req.Namespace == q.req.Namespace &&
			q.shares(o, 0, o.tokens[:o.matched], q.tokens) > q.first:
			o.doubtful = true
		}
	}
	purge(s)
	discardBelow(s, q)
}

// discardBelow drops from the lower tiers what q has computed and the device has no more:
// it was preempted meanwhile, and its pages were given up.
func discardBelow(s *Scheduler, q *sequence) {
	if s.tiers == nil {
		return
	}
	for _, x := range s.tiers.layout.AppendExtents(nil, q.req.Namespace, q.tokens, q.req.Media) {
		if x.Start+len(x.Tokens) > q.first && s.tiers.residents[x.Key] == nil {
			s.tiers.policy.Discard(x.Key) // with all that continues it
			return
		}
	}
}

// vouch notes that q has sampled from all that it holds: the KV is sound.
func vouch(s *Scheduler, q *sequence) {
	q.vouches, q.doubtful = true, false
	if s.cache != nil {
		s.cache.Trust(q.pin)
	}
	if s.tiers != nil && s.cfg.Tiers.Mode == tiering.Through && q.done >= q.target && !s.flushedSince(q) {
		s.tiers.computed(q, q.done, false)
	}
}

// purge gives back what is distrusted and held by nobody any more.
func purge(s *Scheduler) {
	if s.cache != nil && s.cache.Distrusted() > 0 {
		s.room.takeBack(s.cache.Purge(s.room.freed[:0]), discarded)
	}
}

// isDoubtful reports whether q can't share what it computes: it may stand on wrong KV, or the
// cache has the same tokens in pages that are distrusted, and would exchange q's for them.
func isDoubtful(s *Scheduler, q *sequence, tokens int) bool {
	return q.doubtful || s.cache.Distrusted() > 0 && s.cache.Match(q.key(tokens)).Distrusted
}
