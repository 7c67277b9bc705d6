package scheduler

import (
	"github.com/coppice-llm/coppice/radixcache"
	"github.com/coppice-llm/coppice/scheduler/internal/accounts"
)

// queue holds the waiting sequences: in lanes by rank, and in one list by age. It knows
// how much of each is cached without matching it again: index files a sequence under its
// first block that is not cached, and finds the sequence when that block is published. So
// the cost of a step does not depend on the length of the queue.
type queue struct {
	cfg    *Config           // the scheduler's
	cache  *radixcache.Cache // nil: none
	policy *policy
	order  ordering

	lanes []*lane // the lanes that are not empty, in no order
	byKey map[laneKey]*lane
	spare []*lane // empty lanes for reuse

	oldest, youngest *sequence // ends of the list by arrival; followers and fetching ones included
	size             int
	lastLong         *sequence // within a pass: if not nil, a long prompt must outrank it to be taken

	index      index
	changes    uint64 // since New: sequences that came or left
	admissions uint64 // since New; each OldestEvery-th takes the oldest
	follows    uint64 // since New: waits for another sequence's prefix

	blocked *sequence   // was bypassed MaxBypass times: no other is admitted before it
	skipped []*sequence // within a pass: candidates that can't start now; rejoin puts them back

	displaceable seqHeap // with Config.Displace: samples of requests that were never admitted
}

// queueing is the queue's part of a sequence.
type queueing struct {
	rank         int64       // lower goes first; set by queue.rank, constant while in a lane
	mark         int64       // the ordering's own value; 0 when the sequence enters the queue
	lane         *lane       // nil: in none
	heapAt       [orders]int // index in each heap: the lane's two, and displaceable
	displaceable bool        // it is in queue.displaceable
	older, newer *sequence   // neighbours in the list by arrival

	match  radixcache.Match // of the latest lookup, where the next one continues
	cached int              // tokens known to be cached; may be too high after an eviction
	index  indexing
	follow followState

	unfit   bool   // at a turn since its latest admission it did not fit
	unfitAt uint64 // queue.admissions when unfit was set
}

// newQueue makes an empty queue. Without a cache it has no index.
func newQueue(cfg *Config, pageTokens int, cache *radixcache.Cache, tenants *accounts.Accounts) queue {
	w := queue{
		cfg: cfg, cache: cache, policy: &policies[cfg.Policy], order: policies[cfg.Policy].order(cfg, tenants),
		byKey: make(map[laneKey]*lane), displaceable: seqHeap{order: byWorth},
	}
	if cache != nil {
		w.index = newIndex(pageTokens)
	}
	return w
}

// ranksByCache reports whether the number of cached tokens of q matters before its turn:
// for its rank, or because q may be long, which depends on its uncached part.
func (w *queue) ranksByCache(q *sequence) bool {
	return w.cache != nil && !q.computesAll() && (w.policy.byCache || w.cfg.isLong(0, len(q.tokens)))
}

// add links q into the list by arrival. A new sequence is the youngest. A preempted one
// keeps its arrival, so its place is searched from the oldest: the sequences that were
// admitted are usually among the oldest.
func (w *queue) add(q *sequence) {
	prev, next := w.youngest, (*sequence)(nil)
	if prev != nil && prev.arrival > q.arrival {
		prev, next = nil, w.oldest
		for next.arrival < q.arrival {
			prev, next = next, next.wait.newer
		}
	}
	q.wait.older, q.wait.newer = prev, next
	if prev == nil {
		w.oldest = q
	} else {
		prev.wait.newer = q
	}
	if next == nil {
		w.youngest = q
	} else {
		next.wait.older = q
	}
	w.size++
}

// enqueue adds q to the queue and to the lane that its cached prefix gives.
func (w *queue) enqueue(q *sequence) {
	w.add(q)
	q.group.tenant.Waiting++
	if w.ranksByCache(q) {
		w.lookup(q)
	}
	w.requeue(q)
}

// dequeue undoes enqueue, for a sequence that is admitted or ends.
func (w *queue) dequeue(q *sequence) {
	if q.place == following {
		w.unfollow(q)
	}
	w.drop(q)
	q.group.tenant.Waiting--
	if w.blocked == q {
		w.blocked = nil
	}
}

// drop removes q from all lists of the queue.
func (w *queue) drop(q *sequence) {
	if q.wait.older == nil {
		w.oldest = q.wait.newer
	} else {
		q.wait.older.wait.newer = q.wait.newer
	}
	if q.wait.newer == nil {
		w.youngest = q.wait.older
	} else {
		q.wait.newer.wait.older = q.wait.older
	}
	q.wait.older, q.wait.newer = nil, nil
	w.size--
	w.changes++
	w.leaveLane(q)
	w.withdraw(q)
	w.index.drop(q)
}

// lookup matches q in the cache, keeps the match and the number of cached tokens in q, and
// returns the match. It continues where the last lookup of q ended, so that a queue is not
// matched from the root at each pass. Cost: nothing if the tree has not changed since.
func (w *queue) lookup(q *sequence) radixcache.Match {
	if w.cache == nil {
		return radixcache.Match{}
	}
	q.wait.match = w.peek(q)
	q.wait.cached = q.wait.match.Tokens + q.wait.match.Partial.Tokens
	w.file(q)
	return q.wait.match
}

// peek returns the match that lookup would return, and stores nothing.
func (w *queue) peek(q *sequence) radixcache.Match {
	if w.cache == nil {
		return radixcache.Match{}
	}
	return w.cache.Resume(q.key(q.matchable()), q.wait.match)
}

// requeue puts q back into a lane, by the rank that its cached tokens give.
func (w *queue) requeue(q *sequence) {
	q.place, q.wait.mark = waiting, 0
	w.enterLane(q)
	w.file(q)
	w.changes++
}

// enterLane ranks q and adds it to its lane, which is made if it does not exist.
func (w *queue) enterLane(q *sequence) {
	key := w.rank(q)
	l := w.byKey[key]
	if l == nil {
		if n := len(w.spare); n > 0 {
			l, w.spare = w.spare[n-1], w.spare[:n-1]
		} else {
			l = &lane{aged: seqHeap{order: byAge}}
		}
		l.key, l.at = key, len(w.lanes)
		w.byKey[key] = l
		w.lanes = append(w.lanes, l)
	}
	q.wait.lane = l
	l.ranked.push(q)
	if w.policy.starves {
		l.aged.push(q)
	}
}

// leaveLane removes q from its lane, if it is in one. A lane that becomes empty is kept in
// spare; otherwise each tenant that comes and goes would allocate one.
func (w *queue) leaveLane(q *sequence) {
	l := q.wait.lane
	if l == nil {
		return
	}
	l.ranked.remove(q)
	if w.policy.starves {
		l.aged.remove(q)
	}
	q.wait.lane = nil
	if !l.ranked.empty() {
		return
	}
	last := len(w.lanes) - 1
	w.lanes[l.at] = w.lanes[last]
	w.lanes[l.at].at = l.at
	w.lanes[last] = nil
	w.lanes = w.lanes[:last]
	delete(w.byKey, l.key)
	l.key = laneKey{}
	w.spare = append(w.spare, l)
}

// rejoin puts the sequences that a pass skipped back into their lanes.
func (w *queue) rejoin() {
	for i, q := range w.skipped {
		if q.wait.lane == nil && q.place == waiting {
			w.enterLane(q)
		}
		w.skipped[i] = nil
	}
	w.skipped = w.skipped[:0]
}

// rerank moves q to the lane and the rank that its cached tokens give now. A q without a
// lane is only filed in the index.
func (w *queue) rerank(q *sequence) {
	if q.wait.lane != nil {
		w.leaveLane(q)
		w.enterLane(q)
	}
	w.file(q)
}

// file updates q in the index, if its rank depends on cached tokens.
func (w *queue) file(q *sequence) {
	if w.ranksByCache(q) {
		w.index.file(q)
	}
}

// published notes in the index that r has put its tokens [from, to) into the cache.
func (w *queue) published(r *sequence, from, to int) {
	if w.size > 0 {
		w.index.published(r, from, to)
	}
}

// rerankPublished ranks those waiting sequences again of which more is cached now, at most
// rerankPerStep in a call. It relies on the index and does not match prompts in the cache.
// The number of cached tokens is cut to one less than the sequence has, because its last
// token is always computed.
func (w *queue) rerankPublished() {
	for range rerankPerStep {
		q, cached := w.index.next()
		if q == nil {
			return
		}
		q.wait.cached = min(cached, len(q.tokens)-1)
		w.rerank(q)
	}
}

// offer notes, with Config.Displace, that q may be displaced. Its request was never
// admitted.
func (w *queue) offer(q *sequence) {
	if w.cfg.Displace {
		q.wait.displaceable = true
		w.displaceable.push(q)
	}
}

// withdraw undoes offer, because q leaves the queue or a sample of its request is admitted.
func (w *queue) withdraw(q *sequence) {
	if q.wait.displaceable {
		q.wait.displaceable = false
		w.displaceable.remove(q)
	}
}
