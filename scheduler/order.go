package scheduler

import "math/bits"

// rank sets q.rank by what is known now and says which lane q belongs into.
// Ranks do not change with time, so lanes stay sorted while nobody looks: where
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
		q.rank = int64(scatter(w.cfg.Seed, uint64(q.req.ID), uint64(q.sample)) >> 1)
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

// scatter is a hash of its words, by SplitMix64's finalizer (Steele, Lea, Flood 2014).
func scatter(words ...uint64) uint64 {
	z := uint64(0)
	for _, w := range words {
		z = (z ^ w) + 0x9e3779b97f4a7c15
		z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
		z = (z ^ z>>27) * 0x94d049bb133111eb
		z ^= z >> 31
	}
	return z
}

// shut tells whether nobody in a lane can be taken now.
func (w *queue) shut(l *lane) bool {
	return l.key.long && w.noLong || l.key.tenant != nil && l.key.tenant.atLimit()
}

// shutOut is the same of a sequence, wherever it is.
func (w *queue) shutOut(q *sequence) bool {
	return w.noLong && w.cfg.isLong(q.cached, len(q.tokens)) || q.tenant.atLimit()
}

// best is whom the policy takes next, nil if nobody can be: parked ones and
// those in lanes that are shut are not looked at. work is the device's so far.
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
		if w.shut(l) {
			continue
		}
		q := l.head()
		if w.cfg.Policy == HRRN {
			r := float64(work-q.born+1) / float64(max(len(q.tokens)-q.cached, 1))
			if best == nil || r > ratio || r == ratio && q.arrival < best.arrival {
				best, ratio = q, r
			}
		} else if best == nil || byRank.before(q, best) {
			best = q
		}
	}
	return best
}

// bestByDeficit is LPM among the tenants with something left of their share. When
// none of those who wait has, a round begins: each gets a quantum times its
// weight, as often as it takes. But not while somebody has something left who
// does not fit: others would be served rounds ahead of it.
func (w *queue) bestByDeficit() *sequence {
	var best *sequence
	rounds := int64(0)
	for _, l := range w.lanes {
		t := l.key.tenant
		if w.shut(l) {
			continue
		}
		if q := l.head(); t.deficit > 0 && (best == nil || byRank.before(q, best)) {
			best = q
		}
		if n := -t.deficit/(int64(w.cfg.Quantum)*int64(t.cfg.Weight)) + 1; rounds == 0 || n < rounds {
			rounds = n
		}
	}
	if best != nil || rounds == 0 || w.owed {
		return best
	}
	w.round++
	for _, l := range w.lanes {
		if t := l.key.tenant; !w.shut(l) && t.round != w.round {
			t.round = w.round // it may have two lanes
			t.deficit += rounds * int64(w.cfg.Quantum) * int64(t.cfg.Weight)
		}
	}
	return w.bestByDeficit()
}

// longestWaiting is the oldest that can be taken, nil if nobody can be.
func (w *queue) longestWaiting() *sequence {
	var oldest *sequence
	for _, l := range w.lanes {
		if w.shut(l) {
			continue
		}
		if q := l.aged.lined[0]; oldest == nil || q.arrival < oldest.arrival {
			oldest = q
		}
	}
	return oldest
}
