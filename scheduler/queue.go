package scheduler

import (
	"cmp"
	"slices"

	"github.com/coppice-llm/coppice/radixcache"
)

// enqueue puts q back by age: a preempted sequence goes before all that came
// after it.
func (s *Scheduler) enqueue(q *sequence) {
	i, _ := slices.BinarySearchFunc(s.waiting, q.arrival, func(w *sequence, arrival uint64) int {
		return cmp.Compare(w.arrival, arrival)
	})
	s.waiting = slices.Insert(s.waiting, i, q)
}

// dequeue takes q out of the queue and counts whom it overtook.
func (s *Scheduler) dequeue(q *sequence) {
	i := slices.Index(s.waiting, q)
	for _, older := range s.waiting[:i] {
		older.bypassed++
	}
	s.waiting = slices.Delete(s.waiting, i, i+1)
}

// candidates orders the waiting sequences by the policy, into scratch that is
// valid until the next call. Source: SGLang's schedule policies fcfs and lpm,
// the latter here without the cliff at 128 waiting and with a bound on waiting.
func (s *Scheduler) candidates() []*sequence {
	s.order = append(s.order[:0], s.waiting...)
	if s.cfg.Policy == LPM && s.cache != nil && len(s.order) > 1 {
		s.sortByMatch(s.order)
	}
	return s.order
}

// sortByMatch puts starved sequences first, then the longest cached prefix;
// equal ones keep their age.
func (s *Scheduler) sortByMatch(order []*sequence) {
	type key struct {
		starved bool
		cached  int
	}
	keys := make(map[*sequence]key, len(order))
	for _, q := range order {
		m := s.lookup(q)
		keys[q] = key{q.bypassed >= s.cfg.MaxBypass, m.Tokens + m.Partial.Tokens}
	}
	slices.SortStableFunc(order, func(a, b *sequence) int {
		ka, kb := keys[a], keys[b]
		if ka.starved != kb.starved {
			if ka.starved {
				return -1
			}
			return 1
		}
		if ka.starved {
			return 0
		}
		return cmp.Compare(kb.cached, ka.cached)
	})
}

// lookup matches all but the last token of q: one must be computed to get
// logits. It goes on where the last lookup of q ended, so that a queue is not
// matched from the root at each pass.
func (s *Scheduler) lookup(q *sequence) radixcache.Match {
	q.match = s.cache.Resume(q.key(len(q.tokens)-1), q.match)
	return q.match
}

// follows tells whether q should wait for a prompt that is being computed: that
// one will soon publish at least ShareTokens more of q's prefix than q finds in
// the cache now (cached tokens). It can't wait for ever: the other one prefills
// at every step, publishes as it goes, and ends.
func (s *Scheduler) follows(q *sequence, cached int) bool {
	if s.cache == nil {
		return false
	}
	most := len(q.tokens) - 1
	for _, r := range s.running {
		// computed is target while the plan with the last chunk is being made or
		// runs: what it computes is not in the cache yet.
		if r.computed > r.target || r.req.Namespace != q.req.Namespace {
			continue
		}
		whole := r.target / s.info.PageTokens * s.info.PageTokens
		if common(r.tokens[:whole], q.tokens[:most]) >= cached+s.cfg.ShareTokens {
			return true
		}
	}
	return false
}

// common is the length of the longest common prefix.
func common[T comparable](a, b []T) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}
