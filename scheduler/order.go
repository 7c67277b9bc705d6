package scheduler

import (
	"math/bits"

	"github.com/coppice-llm/coppice/scheduler/internal/accounts"
)

// rank sets q.rank from the present state and returns the key of the lane that q belongs
// to. The rank of q does not change while q waits in that lane, so heaps stay sorted. Under
// policies that count waiting time, the time of all sequences grows alike, and only the
// difference of their arrivals matters. Under LPM, q goes before o if
//
//	cached(q) + (work - born(q))/Aging  >  cached(o) + (work - born(o))/Aging
//
// work cancels out, so the inequality holds at all times or never. The rank, lowest first,
// is therefore born/Aging - cached.
func (w *queue) rank(q *sequence) laneKey {
	key := laneKey{long: w.cfg.isLong(q.wait.cached, len(q.tokens))}
	if q.group.tenant.Limited() || w.cfg.Policy == DLPM {
		key.tenant = q.group.tenant
	}
	switch w.cfg.Policy {
	case LPM, DLPM:
		q.wait.rank = int64(q.group.born)/int64(w.cfg.Aging) - int64(q.wait.cached)
	case DFSWeight:
		q.wait.rank = q.wait.treeRank
	case LOF:
		q.wait.rank = -int64(q.limit)
	case HRRN:
		q.wait.rank = int64(q.group.born)
		key.ratio = ratioClass(len(q.tokens) - q.wait.cached)
	case Random:
		q.wait.rank = int64(mix(w.cfg.Seed, uint64(q.req.ID), uint64(q.sample)) >> 1) // >> 1: not negative
	case Priority:
		q.wait.rank = -int64(q.req.Priority)
	default:
		q.wait.rank = 0
	}
	return key
}

// ratioClass sorts counts of uncached tokens into classes of an eighth of an octave.
// Within a class the oldest sequence has the highest response ratio, to within an eighth,
// so best compares only the heads of lanes. For example, 1000 tokens have e = 9 and the
// class 9·8+7 = 79, which holds 960 to 1023.
func ratioClass(uncached int) int {
	u := uint(max(uncached, 1))
	e := bits.Len(u) - 1
	return e<<3 | int(u<<3>>e&7)
}

// mix hashes words with the finalizer of SplitMix64 (Steele, Lea, Flood 2014).
func mix(words ...uint64) uint64 {
	z := uint64(0)
	for _, w := range words {
		z = (z ^ w) + 0x9e3779b97f4a7c15
		z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
		z = (z ^ z>>27) * 0x94d049bb133111eb
		z ^= z >> 31
	}
	return z
}

// closed reports whether no sequence of the lane l can be taken now: its tenant is at its
// limit, or it is a lane of long prompts and even its head must wait for long prompts that
// are being computed.
func (w *queue) closed(l *lane) bool {
	return l.key.long && w.longFull(l.head()) || l.key.tenant != nil && l.key.tenant.AtLimit()
}

// excluded reports whether q, in a lane or not, can't be taken now, for the reasons of
// closed.
func (w *queue) excluded(q *sequence) bool {
	return w.lastLong != nil && w.cfg.isLong(q.wait.cached, len(q.tokens)) && w.longFull(q) || q.group.tenant.AtLimit()
}

// longFull reports whether q, which is long, must wait for long prompts that are being
// computed.
func (w *queue) longFull(q *sequence) bool {
	return w.lastLong != nil && w.cfg.ranks(q, w.lastLong) <= 0
}

// best returns the sequence that the policy takes next, nil if there is none. It looks at
// the heads of the lanes that are not closed; followers and fetching sequences are in no
// lane. work is Scheduler.work. DFSWeight sorts the queue again after a quarter of it has
// changed.
func (w *queue) best(work uint64) *sequence {
	if w.cfg.Policy == DFSWeight && w.cache != nil && 4*w.stale > w.size {
		w.orderByWeight()
	}
	if w.cfg.Policy == DLPM {
		return w.bestByDeficit()
	}
	var best *sequence
	var ratio float64
	for _, l := range w.lanes {
		if w.closed(l) {
			continue
		}
		q := l.head()
		if w.cfg.Policy == HRRN {
			r := float64(work-q.group.born+1) / float64(max(len(q.tokens)-q.wait.cached, 1))
			if best == nil || r > ratio || r == ratio && q.arrival < best.arrival {
				best, ratio = q, r
			}
		} else if best == nil || q.outranks(best) {
			best = q
		}
	}
	return best
}

// outranks reports whether q precedes o in the policy's order: by rank, then by age.
func (q *sequence) outranks(o *sequence) bool {
	if q.wait.rank != o.wait.rank {
		return q.wait.rank < o.wait.rank
	}
	return q.arrival < o.arrival
}

// choosable calls do for each lane that is not closed, in no particular order.
func (w *queue) choosable(do func(l *lane)) {
	for _, l := range w.lanes {
		if !w.closed(l) {
			do(l)
		}
	}
}

// bestByDeficit is best under DLPM: among the tenants of the lowest round it takes the best
// sequence in the order of LPM. If a sequence whose tenant is in a lower round did not fit
// in this pass, bestByDeficit returns nil rather than a sequence of a later round:
// otherwise others would get rounds ahead of a tenant whose request is large.
func (w *queue) bestByDeficit() (best *sequence) {
	lowest := w.owed
	w.choosable(func(l *lane) {
		w.accounts.Lift(l.key.tenant)
		lowest = min(lowest, l.key.tenant.Round())
	})
	if lowest == accounts.Never {
		return nil
	}
	w.choosable(func(l *lane) {
		if q := l.head(); l.key.tenant.Round() == lowest && (best == nil || q.outranks(best)) {
			best = q
		}
	})
	return best
}

// hasTurn reports whether no tenant in a lower round than that of q could be served; under
// policies other than DLPM it returns true. Pages are kept for q only if it has its turn. A
// tenant that is more than one round below the current one counts as if it were one round
// below.
func (w *queue) hasTurn(q *sequence) bool {
	turn := true
	if w.cfg.Policy == DLPM {
		w.choosable(func(l *lane) {
			turn = turn && max(l.key.tenant.Round(), w.accounts.Round()-1) >= q.group.tenant.Round()
		})
	}
	return turn
}

// owe sets w.owed to the lowest round among the tenants of the waiting sequences in unfit,
// under DLPM; to Never if there are none, or under other policies.
func (w *queue) owe(unfit []*sequence) {
	w.owed = accounts.Never
	if w.cfg.Policy != DLPM {
		return
	}
	for _, q := range unfit {
		if q.place == waiting {
			w.owed = min(w.owed, q.group.tenant.Round())
		}
	}
}

// longestWaiting returns the oldest sequence that can be taken, nil if there is none.
func (w *queue) longestWaiting() *sequence {
	var oldest *sequence
	for _, l := range w.lanes {
		if w.closed(l) {
			continue
		}
		q := l.aged.first()
		// closed looks at the lane's first sequence by rank. That may outrank lastLong while
		// the oldest sequence, q, does not.
		if l.key.long && w.longFull(q) {
			continue
		}
		if oldest == nil || q.arrival < oldest.arrival {
			oldest = q
		}
	}
	return oldest
}

// candidate returns the sequence to try next, nil if there is none. work is Scheduler.work,
// and freeSlots the number of free slots. candidate matches the sequence in the cache
// again, because pages may have been evicted since it was ranked. If its match is shorter
// by a block of the index or more, the sequence is ranked again, and the next best is
// looked at. After maxTries such sequences, the best is taken as it is.
func (w *queue) candidate(work uint64, freeSlots int) *sequence {
	w.owe(w.skipped)
	// Under Priority the oldest sequence is tried once in a pass, and only if a slot is
	// free. Otherwise it could keep others from preempting.
	oldest := w.cfg.Policy != Priority || freeSlots > 0 && len(w.skipped) == 0
	if oldest && w.needsOldest() && (w.admissions+1)%uint64(w.cfg.OldestEvery) == 0 {
		if q := w.longestWaiting(); q != nil {
			w.lookup(q)
			return q
		}
	}
	for range maxTries {
		q := w.best(work)
		if q == nil {
			return nil
		}
		if w.cfg.Policy == DLPM { // only here: a look ahead must not end the credit of tenants that it passes
			w.accounts.Reach(q.group.tenant.Round())
		}
		was := q.wait.cached
		w.lookup(q)
		if !w.ranksByCache(q) || q.wait.cached+w.index.blockTokens > was {
			return q
		}
		w.rerank(q) // its rank was too high
	}
	return w.best(work)
}

// bypass takes q, which does not fit, out of its lane for the rest of the pass, so that
// others are tried; it does nothing if q blocks the queue. The first call for q notes the
// number of admissions, from which MaxBypass counts.
func (w *queue) bypass(q *sequence) {
	if q == w.blocked {
		return
	}
	if !q.wait.unfit {
		q.wait.unfit, q.wait.unfitAt = true, w.admissions
	}
	w.leaveLane(q)
	w.skipped = append(w.skipped, q)
	w.keepRoomFor(w.skipped[len(w.skipped)-1:])
}

// keepRoomFor lets the first waiting sequence of unfit that was bypassed MaxBypass times
// block the queue, unless another one blocks it already. It passes over sequences that
// can't be taken anyway, see excluded.
func (w *queue) keepRoomFor(unfit []*sequence) {
	for _, q := range unfit {
		if w.blocked == nil && q.place == waiting && w.admissions-q.wait.unfitAt >= uint64(w.cfg.MaxBypass) && !w.excluded(q) {
			w.blocked = q
		}
	}
}
