package scheduler

// rank sets q.wait.rank from the present state and returns the key of the lane that q belongs
// to. The rank of q does not change while q waits in that lane, so heaps stay sorted.
func (w *queue) rank(q *sequence) laneKey {
	key := laneKey{long: w.cfg.isLong(q.wait.cached, len(q.tokens)), class: w.order.class(q)}
	if q.group.tenant.Limited() || w.policy.byTenant {
		key.tenant = q.group.tenant
	}
	q.wait.rank = w.order.rank(q)
	return key
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
// lane. work is Scheduler.work.
func (w *queue) best(work uint64) *sequence { return w.order.best(w, work) }

// outranks reports whether q precedes o in the policy's order: by rank, then by age.
func (q *sequence) outranks(o *sequence) bool {
	if q.wait.rank != o.wait.rank {
		return q.wait.rank < o.wait.rank
	}
	return q.arrival < o.arrival
}

// longestWaiting returns the oldest sequence that can be taken, nil if there is none.
func (w *queue) longestWaiting() *sequence {
	var oldest *sequence
	for _, l := range w.lanes {
		if w.closed(l) {
			continue
		}
		q := l.aged.head()
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
	w.order.passes(w.skipped)
	// Under Priority the oldest sequence is tried once in a pass, and only if a slot is
	// free. Otherwise it could keep others from preempting.
	oldest := !w.policy.preempts || freeSlots > 0 && len(w.skipped) == 0
	if oldest && w.policy.starves && (w.admissions+1)%uint64(w.cfg.OldestEvery) == 0 {
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
		w.order.tries(q)
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
