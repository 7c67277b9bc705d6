package scheduler

import (
	"github.com/coppice-llm/coppice/radixcache"
)

// queue holds the waiting sequences in lanes, all of them also by age. It knows
// for each how much of it is cached, without asking the tree again: a sequence is
// indexed by the first block of it that is not cached, and is told when that is.
type queue struct {
	cfg      *Config           // the scheduler's
	cache    *radixcache.Cache // nil: none
	accounts *accounts         // the scheduler's

	lanes []*lane // those that are not empty
	byKey map[laneKey]*lane
	spare []*lane

	oldest, youngest *sequence // by arrival, linked; followers too
	size             int
	lastLong         *sequence // if not nil, a long prompt must outrank it to be taken in this pass
	owed             int64     // under DLPM, within a pass: the lowest round of the tenants that do not fit

	index      index
	stale      int     // changes since the last ordering by weight
	weights    weights // scratch of that
	admissions uint64  // so far, for OldestEvery
	follows    uint64  // so far: waits for another sequence's prefix

	blocked *sequence   // was overtaken MaxBypass times: no other is admitted before it
	skipped []*sequence // within a pass of admission: candidates that can't start now

	displaceable seqHeap // with Config.Displace: samples of requests that were never admitted
}

// queueing is a sequence's part of it.
type queueing struct {
	rank         int64
	treeRank     int64       // place in the latest ordering by weight
	nextOwn      *sequence   // scratch of that
	lane         *lane       // nil: in none
	heapAt       [orders]int // in the lane's heaps and in displaceable
	displaceable bool        // stands there
	older, newer *sequence

	match  radixcache.Match // the latest lookup
	cached int              // tokens known to be cached
	indexing

	leader    *sequence  // while following
	until     int        // while following: tokens that the leader is to compute
	followAt  int        // while following: among the leader's followers
	followers []follower // that follow this one
	unfit     bool       // since its latest preemption it was found not to fit
	unfitAt   uint64     // queue.admissions at that time
}

func newQueue(cfg *Config, pageTokens int, cache *radixcache.Cache, accounts *accounts) queue {
	w := queue{cfg: cfg, cache: cache, accounts: accounts, owed: never, byKey: make(map[laneKey]*lane), displaceable: seqHeap{order: byWorth}}
	if cache != nil {
		w.index = newIndex(pageTokens)
	}
	return w
}

// needsOldest reports whether some admissions go to the oldest.
func (w *queue) needsOldest() bool { return w.cfg.Policy != FCFS && w.cfg.Policy != DLPM }

// ranksByCache reports whether what is cached of q matters before its turn: to its rank,
// or to whether it is long.
func (w *queue) ranksByCache(q *sequence) bool {
	return w.cache != nil && !q.wantsPrompt() && (w.cfg.Policy.usesMatches() || w.cfg.isLong(0, len(q.tokens)))
}

// add links q in by age: at the young end, but a preempted one among the old.
func (w *queue) add(q *sequence) {
	prev, next := w.youngest, (*sequence)(nil)
	if prev != nil && prev.arrival > q.arrival {
		prev, next = nil, w.oldest
		for next.arrival < q.arrival {
			prev, next = next, next.newer
		}
	}
	q.older, q.newer = prev, next
	if prev == nil {
		w.oldest = q
	} else {
		prev.newer = q
	}
	if next == nil {
		w.youngest = q
	} else {
		next.older = q
	}
	w.size++
}

// enqueue puts q into the queue, by the rank that its cached prefix gives.
func (w *queue) enqueue(q *sequence) {
	w.add(q)
	q.tenant.waiting++
	if w.ranksByCache(q) {
		w.lookup(q)
	}
	w.requeue(q)
}

// dequeue is the opposite of enqueue.
func (w *queue) dequeue(q *sequence) {
	if q.place == following {
		q.leader.unfollow(q)
	}
	w.drop(q)
	q.tenant.waiting--
	if w.blocked == q {
		w.blocked = nil
	}
}

// drop takes q out of all lists.
func (w *queue) drop(q *sequence) {
	if q.older == nil {
		w.oldest = q.newer
	} else {
		q.older.newer = q.newer
	}
	if q.newer == nil {
		w.youngest = q.older
	} else {
		q.newer.older = q.older
	}
	q.older, q.newer = nil, nil
	w.size--
	w.stale++
	w.leaveLane(q)
	w.keep(q)
	w.index.drop(q)
}

// lookup matches what of q may come from the cache. It goes on where the last lookup of q ended, so that a queue is not
// matched from the root at each pass.
func (w *queue) lookup(q *sequence) radixcache.Match {
	if w.cache == nil {
		return radixcache.Match{}
	}
	q.match = w.peek(q)
	q.cached = q.match.Tokens + q.match.Partial.Tokens
	w.file(q)
	return q.match
}

// peek is lookup for a reader: it keeps nothing of what it finds.
func (w *queue) peek(q *sequence) radixcache.Match {
	if w.cache == nil {
		return radixcache.Match{}
	}
	return w.cache.Resume(q.key(q.matchable()), q.match)
}

// requeue puts q into its lane, by the rank that what is known of it gives.
func (w *queue) requeue(q *sequence) {
	q.place, q.treeRank = waiting, notRanked
	w.enterLane(q)
	w.file(q)
	w.stale++
}

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
	q.lane = l
	l.ranked.push(q)
	if w.needsOldest() {
		l.aged.push(q)
	}
}

func (w *queue) leaveLane(q *sequence) {
	l := q.lane
	if l == nil {
		return
	}
	l.ranked.remove(q)
	if w.needsOldest() {
		l.aged.remove(q)
	}
	q.lane = nil
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

// rejoin puts those back into their lanes that were skipped in a pass.
func (w *queue) rejoin() {
	for i, q := range w.skipped {
		if q.lane == nil && q.place == waiting {
			w.enterLane(q)
		}
		w.skipped[i] = nil
	}
	w.skipped = w.skipped[:0]
}

// rerank moves q to where what is known of it now puts it.
func (w *queue) rerank(q *sequence) {
	if q.lane != nil {
		w.leaveLane(q)
		w.enterLane(q)
	}
	w.file(q)
}

// file tells the index what is missing of q, where that matters.
func (w *queue) file(q *sequence) {
	if w.ranksByCache(q) {
		w.index.file(q)
	}
}

// published notes that r has put tokens [from, to) into the cache.
func (w *queue) published(r *sequence, from, to int) {
	if w.size > 0 {
		w.index.published(r, from, to)
	}
}

// rerankPublished ranks waiting sequences anew of which more is cached now: as many as
// a step has time for.
func (w *queue) rerankPublished() {
	for range rerankPerStep {
		q, cached := w.index.next()
		if q == nil {
			return
		}
		q.cached = min(cached, len(q.tokens)-1)
		w.rerank(q)
	}
}

// offer makes a sample that was never admitted one that a full queue may end.
func (w *queue) offer(q *sequence) {
	if w.cfg.Displace {
		q.displaceable = true
		w.displaceable.push(q)
	}
}

// keep takes q off those that a full queue may end.
func (w *queue) keep(q *sequence) {
	if q.displaceable {
		q.displaceable = false
		w.displaceable.remove(q)
	}
}
