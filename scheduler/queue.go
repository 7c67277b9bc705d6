package scheduler

import (
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/radixcache"
)

// queue holds the waiting sequences in lanes, all of them also by age. It knows
// for each how much of it is cached, without asking the tree again: a sequence is
// indexed by the first block of it that is not cached, and is told when that is.
type queue struct {
	cfg   *Config           // the scheduler's
	cache *radixcache.Cache // nil: none

	lanes []*lane // those that hold somebody
	byKey map[laneKey]*lane
	spare []*lane

	oldest, youngest *sequence // by arrival, linked; parked ones too
	size             int
	noLong           bool   // no long prompt can be taken in this pass
	owed             bool   // under DLPM, within a pass: one whose turn it is does not fit
	round            uint64 // of DLPM

	blockTokens int                        // 0: nobody needs to know what is cached
	missing     map[kv.BlockHash]*sequence // by the chained hash up to and with the first block that is not cached
	hashed      []byte                     // scratch of hash
	stale       int                        // changes since the last ordering by weight
	weights     weights                    // scratch of that
	admissions  uint64                     // so far, for OldestEvery
}

// queueing is a sequence's part of it.
type queueing struct {
	rank         int64
	treeRank     int64     // place in the latest ordering by weight
	nextOwn      *sequence // scratch of that
	lane         *lane     // nil: in none
	lineAt       int       // in the lane
	older, newer *sequence

	match    radixcache.Match // the latest lookup
	cached   int              // tokens known to be cached
	chain    []kv.BlockHash   // hash of each whole block of tokens, chained
	block    kv.BlockHash     // key under which it is in queue.missing
	indexed  bool
	nextMiss *sequence
	prevMiss *sequence

	leader    *sequence  // while parked
	followers []follower // parked for this one
	unfit     bool       // since its latest preemption it was found not to fit
	unfitAt   uint64     // queue.admissions at that time
}

// block size of the index of what is cached: shorter growth is not worth a
// change of order.
const indexTokens = 64

func newQueue(cfg *Config, pageTokens int, cache *radixcache.Cache) queue {
	w := queue{cfg: cfg, cache: cache, byKey: make(map[laneKey]*lane)}
	if cache != nil && cfg.Policy.usesMatches() {
		w.blockTokens = max(indexTokens, pageTokens)
		w.missing = make(map[kv.BlockHash]*sequence)
	}
	return w
}

// add links q in by age.
func (w *queue) add(q *sequence) {
	next := (*sequence)(nil)
	prev := w.youngest
	for prev != nil && prev.arrival > q.arrival { // a preempted one goes back among the old
		next, prev = prev, prev.older
	}
	if next != nil && w.oldest.arrival > q.arrival {
		prev = nil
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

// drop takes q out of everything.
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
	w.leaveLane(q)
	w.unindex(q)
}

// lookup matches all but the last token of q: one must be computed to get
// logits. It goes on where the last lookup of q ended, so that a queue is not
// matched from the root at each pass.
func (w *queue) lookup(q *sequence) radixcache.Match {
	if w.cache == nil {
		return radixcache.Match{}
	}
	q.match = w.cache.Resume(q.key(len(q.tokens)-1), q.match)
	q.cached = q.match.Tokens + q.match.Partial.Tokens
	w.reindex(q)
	return q.match
}

// line puts q into its lane, by the rank that what is known of it gives.
func (w *queue) line(q *sequence) {
	q.place, q.treeRank = inLine, notRanked
	w.enterLane(q)
	w.reindex(q)
	w.stale++
}

func (w *queue) enterLane(q *sequence) {
	key := w.rank(q)
	l := w.byKey[key]
	if l == nil {
		if n := len(w.spare); n > 0 {
			l, w.spare = w.spare[n-1], w.spare[:n-1]
		} else {
			l = new(lane)
		}
		l.key, l.at = key, len(w.lanes)
		w.byKey[key] = l
		w.lanes = append(w.lanes, l)
	}
	l.push(q)
}

func (w *queue) leaveLane(q *sequence) {
	l := q.lane
	if l == nil {
		return
	}
	l.remove(q)
	w.stale++
	if len(l.lined) > 0 {
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

// rerank moves q to where what is known of it now puts it.
func (w *queue) rerank(q *sequence) {
	if q.lane != nil {
		w.leaveLane(q)
		w.enterLane(q)
	}
	w.reindex(q)
}

// hash extends the chain of q's blocks over the tokens that it has.
func (w *queue) hash(q *sequence) {
	if w.blockTokens == 0 || (len(q.chain)+1)*w.blockTokens > len(q.tokens) {
		return
	}
	if q.chain == nil {
		q.chain = make([]kv.BlockHash, 0, cap(q.tokens)/w.blockTokens)
	}
	seed := q.req.Namespace.Seed()
	for lo := len(q.chain) * w.blockTokens; lo+w.blockTokens <= len(q.tokens); lo += w.blockTokens {
		var local kv.LocalHash
		local, w.hashed = kv.HashLocal(q.tokens[lo:lo+w.blockTokens], seed, w.hashed)
		h := kv.BlockHash(local)
		if n := len(q.chain); n > 0 {
			h = kv.Chain(q.chain[n-1], local)
		}
		q.chain = append(q.chain, h)
	}
}

// reindex files q under its first block that is not cached.
func (w *queue) reindex(q *sequence) {
	if w.blockTokens == 0 {
		return
	}
	i := q.cached / w.blockTokens
	if q.indexed && i < len(q.chain) && q.block == q.chain[i] {
		return
	}
	w.unindex(q)
	if i >= len(q.chain) {
		return // less than a block is missing
	}
	q.block, q.indexed = q.chain[i], true
	first := w.missing[q.block]
	q.nextMiss = first
	if first != nil {
		first.prevMiss = q
	}
	w.missing[q.block] = q
}

func (w *queue) unindex(q *sequence) {
	if !q.indexed {
		return
	}
	switch {
	case q.prevMiss != nil:
		q.prevMiss.nextMiss = q.nextMiss
	case q.nextMiss != nil:
		w.missing[q.block] = q.nextMiss
	default:
		delete(w.missing, q.block)
	}
	if q.nextMiss != nil {
		q.nextMiss.prevMiss = q.prevMiss
	}
	q.nextMiss, q.prevMiss, q.indexed = nil, nil, false
}

// published tells those who wait that tokens [from, to) of r are cached now.
func (w *queue) published(r *sequence, from, to int) {
	if w.blockTokens == 0 || w.size == 0 {
		return
	}
	w.hash(r)
	for i := from / w.blockTokens; (i+1)*w.blockTokens <= to; i++ {
		q := w.missing[r.chain[i]]
		for q != nil {
			next := q.nextMiss
			n := i + 1
			for (n+1)*w.blockTokens <= to && n < len(q.chain) && q.chain[n] == r.chain[n] {
				n++
			}
			q.cached = min(n*w.blockTokens, len(q.tokens)-1)
			w.rerank(q)
			q = next
		}
	}
}
