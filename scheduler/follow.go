package scheduler

// follower waits for tokens [0, until) of a prompt in flight. The field stands here
// as well as in q, so that looking through many followers reads no sequence.
type follower struct {
	q     *sequence
	until int
}

// leaderOf finds the prompt in flight that q should wait for, nil if none: one that
// will soon have at least ShareTokens more of q's prefix than the have tokens that q finds
// now. The wait ends: the leader prefills at every step and publishes as it goes.
func (x *prefixes) leaderOf(q *sequence, have int) (leader *sequence, until int) {
	if x.cache == nil {
		return nil, 0
	}
	most := q.tokens[:q.matchable()]
	for _, r := range x.running.prefilling {
		share := x.cfg.ShareTokens
		if r.group == q.group {
			share = 1
		}
		known := r.tokens[:r.target]
		// Nearly always one token tells.
		if have+share > min(len(known), len(most)) || known[have] != most[have] || r.req.Namespace != q.req.Namespace || x.flushedSince(r) {
			continue
		}
		if n := q.shares(r, 0, known, most); n >= have+share && n > until && !x.doubtful(r, r.target) {
			leader, until = r, n
		}
	}
	return leader, until
}

// follow takes q out of its lane until its leader has computed what they share.
func (w *queue) follow(q, leader *sequence, until int) {
	w.leaveLane(q)
	q.place, q.leader, q.until, q.followAt = following, leader, until, len(leader.followers)
	leader.followers = append(leader.followers, follower{q, until})
	w.follows++
}

// unfollow forgets that q follows r.
func (r *sequence) unfollow(q *sequence) {
	i, last := q.followAt, len(r.followers)-1
	r.followers[i] = r.followers[last]
	r.followers[i].q.followAt = i
	r.followers[last] = follower{}
	r.followers = r.followers[:last]
	q.leader, q.place = nil, waiting
}

// release puts followers of r back into their lanes: those that wait for no more than its
// first have tokens, or all of them.
func (w *queue) release(r *sequence, have int, all bool) {
	kept := r.followers[:0]
	for i, f := range r.followers {
		if !all && f.until > have {
			if i > len(kept) {
				f.q.followAt = len(kept)
			}
			kept = append(kept, f)
			continue
		}
		f.q.leader = nil
		if w.cache != nil {
			f.q.cached = max(f.q.cached, min(f.until, have))
		}
		w.requeue(f.q)
	}
	clear(r.followers[len(kept):])
	r.followers = kept
}
