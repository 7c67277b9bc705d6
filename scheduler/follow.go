package scheduler

// follower is a sequence that waits for tokens [0, until) of a prompt in flight. until is
// copied from q, so that a pass over many followers reads no sequence.
type follower struct {
	q     *sequence
	until int
}

// followState tells which sequence another one follows, and which follow it.
type followState struct {
	leader    *sequence  // while following: the sequence that computes or fetches the shared prefix
	until     int        // while following: tokens that the leader must have first
	at        int        // while following: index in the leader's followers
	followers []follower // the sequences that follow this one
}

// leaderOf returns the sequence whose prompt q should wait for, and until, the number of
// leading tokens that q waits for; nil if there is none. have is the number of q's tokens
// whose KV exists already. The leader's prompt must be in the course of being computed, and
// must have at least have+ShareTokens leading tokens in common with q. The wait always
// ends: the leader gets part of each step's budget, or is aborted, and its KV enters the
// tree chunk by chunk.
//
// For example, with ShareTokens 32 and two requests that arrive together with the same
// 2,000 tokens of instructions, the second waits until the first has computed those 2,000
// and computes only its own question. For samples of one request, one shared token more
// than have is enough.
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
		// Nearly always one comparison decides: the first token that q has to compute differs.
		if have+share > min(len(known), len(most)) || known[have] != most[have] || x.flushedSince(r) {
			continue
		}
		if n := min(q.shares(r, 0, known, most), q.together(r, x.room.pageTokens)); n >= have+share && n > until && !x.doubtful(r, r.target) {
			leader, until = r, n
		}
	}
	return leader, until
}

// follow takes q out of its lane until leader has computed or fetched the first tokens of
// q, as many as until says.
func (w *queue) follow(q, leader *sequence, until int) {
	w.leaveLane(q)
	q.place = following
	f := &leader.wait.follow
	q.wait.follow.leader, q.wait.follow.until, q.wait.follow.at = leader, until, len(f.followers)
	f.followers = append(f.followers, follower{q, until})
	w.follows++
}

// unfollow undoes follow.
func (w *queue) unfollow(q *sequence) {
	q.wait.follow.leader.wait.follow.remove(q.wait.follow.at)
	q.wait.follow.leader, q.place = nil, waiting
}

// remove removes the follower at index at. The last follower moves to that index, so
// removing costs O(1).
func (f *followState) remove(at int) {
	last := len(f.followers) - 1
	f.followers[at] = f.followers[last]
	f.followers[at].q.wait.follow.at = at
	f.followers[last] = follower{}
	f.followers = f.followers[:last]
}

// release puts followers of r back into their lanes. have is the number of r's tokens that
// are computed or fetched: followers that wait for at most that many are released, and with
// all set every follower is. A follower that is released early, because r has ended,
// computes the missing tokens itself or finds another leader.
func (w *queue) release(r *sequence, have int, all bool) {
	kept := r.wait.follow.followers[:0]
	for i, f := range r.wait.follow.followers {
		if !all && f.until > have {
			if i > len(kept) {
				f.q.wait.follow.at = len(kept)
			}
			kept = append(kept, f)
			continue
		}
		f.q.wait.follow.leader = nil
		if w.cache != nil {
			f.q.wait.cached = max(f.q.wait.cached, min(f.until, have))
		}
		w.requeue(f.q)
	}
	clear(r.wait.follow.followers[len(kept):])
	r.wait.follow.followers = kept
}
