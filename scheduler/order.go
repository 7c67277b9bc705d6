package scheduler

import "math/bits"

// rank sets q.rank by what is known now and says which lane q belongs into.
// Ranks do not change with time, so lanes stay sorted by themselves: where
// waiting counts, it counts for all alike, and differences of arrival are left.
func (w *queue) rank(q *sequence) laneKey {
	key := laneKey{long: w.cfg.isLong(q.cached, len(q.tokens))}
	if q.tenant.cfg.MaxRunning > 0 || w.cfg.Policy == DLPM {
		key.tenant = q.tenant
	}
	switch w.cfg.Policy {
	case LPM, DLPM:
		q.rank = int64(q.born)/int64(w.cfg.Aging) - int64(q.cached)
	case DFSWeight:
		q.rank = q.treeRank
	case LOF:
		q.rank = -int64(q.limit)
	case HRRN:
		q.rank = int64(q.born)
		key.ratio = ratioClass(len(q.tokens) - q.cached)
	case Random:
		q.rank = int64(mix(w.cfg.Seed, uint64(q.req.ID), uint64(q.sample)) >> 1)
	case Priority:
		q.rank = -int64(q.req.Priority)
	default:
		q.rank = 0
	}
	return key
}

// ratioClass files un-cached tokens by eighths of an octave: within a class the
// oldest has the highest response ratio, to an eighth.
func ratioClass(uncached int) int {
	u := uint(max(uncached, 1))
	e := bits.Len(u) - 1
	return e<<3 | int(u<<3>>e&7)
}

// mix is a hash of its words, by SplitMix64's finalizer (Steele, Lea, Flood 2014).
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

// closed reports whether no sequence of a lane can be taken now.
func (w *queue) closed(l *lane) bool {
	return l.key.long && w.longFull(l.head()) || l.key.tenant != nil && l.key.tenant.atLimit()
}

// excluded is the same of a sequence, wherever it is.
func (w *queue) excluded(q *sequence) bool {
	return w.lastLong != nil && w.cfg.isLong(q.cached, len(q.tokens)) && w.longFull(q) || q.tenant.atLimit()
}

// longFull reports whether as many long prompts are being computed as may be before q,
// which is long.
func (w *queue) longFull(q *sequence) bool {
	return w.lastLong != nil && w.cfg.ranks(q, w.lastLong) <= 0
}

// best returns the sequence that the policy takes next, nil if none can be taken:
// followers and closed lanes are not looked at. work is the device's so far.
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
			r := float64(work-q.born+1) / float64(max(len(q.tokens)-q.cached, 1))
			if best == nil || r > ratio || r == ratio && q.arrival < best.arrival {
				best, ratio = q, r
			}
		} else if best == nil || q.outranks(best) {
			best = q
		}
	}
	return best
}

// outranks reports whether q comes before o in the policy's order: the lower rank, then
// the older.
func (q *sequence) outranks(o *sequence) bool {
	if q.rank != o.rank {
		return q.rank < o.rank
	}
	return q.arrival < o.arrival
}

// choosable calls do for each lane that is not closed.
func (w *queue) choosable(do func(l *lane)) {
	for _, l := range w.lanes {
		if !w.closed(l) {
			do(l)
		}
	}
}

// bestByDeficit is LPM among the tenants of the lowest round. It takes no tenant of a later
// round than one that does not fit: others would be served rounds ahead of it.
func (w *queue) bestByDeficit() (best *sequence) {
	lowest := w.owed
	w.choosable(func(l *lane) {
		w.accounts.lift(l.key.tenant)
		lowest = min(lowest, l.key.tenant.round())
	})
	if lowest == never {
		return nil
	}
	w.choosable(func(l *lane) {
		if q := l.head(); l.key.tenant.round() == lowest && (best == nil || q.outranks(best)) {
			best = q
		}
	})
	return best
}

// hasTurn reports whether, under DLPM, no tenant of a lower round than q's could be
// served: room is kept for q only then.
func (w *queue) hasTurn(q *sequence) bool {
	turn := true
	if w.cfg.Policy == DLPM {
		w.choosable(func(l *lane) { turn = turn && max(l.key.tenant.round(), w.accounts.round-1) >= q.tenant.round() })
	}
	return turn
}

// owe notes the lowest round of the tenants that did not fit in this pass.
func (w *queue) owe(unfit []*sequence) {
	w.owed = never
	if w.cfg.Policy != DLPM {
		return
	}
	for _, q := range unfit {
		if q.place == waiting {
			w.owed = min(w.owed, q.tenant.round())
		}
	}
}

// longestWaiting is the oldest sequence that can be taken, nil if none can be.
func (w *queue) longestWaiting() *sequence {
	var oldest *sequence
	for _, l := range w.lanes {
		if w.closed(l) {
			continue
		}
		q := l.aged.first()
		if l.key.long && w.longFull(q) { // the lane is open for the first by priority alone
			continue
		}
		if oldest == nil || q.arrival < oldest.arrival {
			oldest = q
		}
	}
	return oldest
}

// candidate returns the sequence that the policy takes next, ranked by what is cached
// of it now: some may have been evicted since it was ranked.
func (w *queue) candidate(work uint64, freeSlots int) *sequence {
	w.owe(w.skipped)
	// Under Priority it is tried once in a pass, and does not keep others from preempting.
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
		if w.cfg.Policy == DLPM { // only here: a look ahead must not take credit from those that it passes by
			w.accounts.round = max(w.accounts.round, q.tenant.round())
		}
		was := q.cached
		w.lookup(q)
		if !w.ranksByCache(q) || q.cached+w.index.blockTokens > was {
			return q
		}
		w.rerank(q) // it was ranked too high
	}
	return w.best(work)
}

// bypass lets others be admitted before q, which does not fit: MaxBypass of them since
// it was first found so.
func (w *queue) bypass(q *sequence) {
	if q == w.blocked {
		return
	}
	if !q.unfit {
		q.unfit, q.unfitAt = true, w.admissions
	}
	w.leaveLane(q)
	w.skipped = append(w.skipped, q)
	w.keepRoomFor(w.skipped[len(w.skipped)-1:])
}

// keepRoomFor keeps room for the first of these that was bypassed MaxBypass times.
func (w *queue) keepRoomFor(unfit []*sequence) {
	for _, q := range unfit {
		if w.blocked == nil && q.place == waiting && w.admissions-q.unfitAt >= uint64(w.cfg.MaxBypass) && !w.excluded(q) {
			w.blocked = q
		}
	}
}
