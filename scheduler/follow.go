package scheduler

import (
	"github.com/coppice-llm/coppice/radixcache"
)

// follower waits for tokens [0, until) of a prompt in flight. The field stands here
// as well as in q, so that looking through many followers reads no sequence.
type follower struct {
	q     *sequence
	until int
}

// leaderOf finds the prompt in flight that q should wait for, nil if none: one that
// will soon have at least ShareTokens more of q's prefix than q finds now (have
// tokens). Nobody waits for ever so: the leader prefills at every step, publishes
// as it goes, and ends.
func (s *Scheduler) leaderOf(q *sequence, have int) (leader *sequence, until int) {
	if s.cache == nil {
		return nil, 0
	}
	most := q.tokens[:q.matchable()]
	for _, r := range s.running.prefilling {
		share := s.cfg.ShareTokens
		if r.group == q.group {
			share = 1
		}
		known := r.tokens[:r.target]
		// Nearly always one token tells.
		if have+share > min(len(known), len(most)) || known[have] != most[have] || r.req.Namespace != q.req.Namespace || s.flushedSince(r) {
			continue
		}
		if n := q.shares(r, 0, known, most); n >= have+share && n > until && !isDoubtful(s, r, r.target) {
			leader, until = r, n
		}
	}
	return leader, until
}

// follow takes q out of its lane until its leader has computed what they share.
func (s *Scheduler) follow(q, leader *sequence, until int) {
	s.queue.leaveLane(q)
	q.place, q.leader, q.until, q.followAt = following, leader, until, len(leader.followers)
	leader.followers = append(leader.followers, follower{q, until})
	s.metrics.Followers++
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

// release lets followers of r go on whose part r has computed, all of them if it
// computes no more.
func (s *Scheduler) release(r *sequence, all bool) { s.releaseTo(r, r.done, all) }

// releaseTo lets followers of r go on that wait for no more than its first have tokens, or
// all of them.
func (s *Scheduler) releaseTo(r *sequence, have int, all bool) {
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
		if s.cache != nil {
			f.q.cached = max(f.q.cached, min(f.until, have))
		}
		s.queue.requeue(f.q)
	}
	clear(r.followers[len(kept):])
	r.followers = kept
}

// openPage finds a running sequence whose last page, which is not in the tree yet,
// goes on where q's match ends, and how many tokens of it q may copy: more than
// the tree's best partial page has.
func (s *Scheduler) openPage(q *sequence, m radixcache.Match) (r *sequence, tokens int) {
	if s.cache == nil {
		return nil, 0
	}
	at, most := m.Tokens, q.matchable()
	tokens = m.Partial.Tokens
	for _, o := range s.running.all {
		if o.pin != m.Node || o.known() <= at+tokens || o.shared*s.info.PageTokens != at || o.req.Namespace != q.req.Namespace || o == q || s.flushedSince(o) || o.doubtful {
			continue
		}
		end := min(o.known(), at+s.info.PageTokens)
		if n := q.shares(o, at, o.tokens[at:end], q.tokens[at:most]); n > tokens {
			r, tokens = o, n
		}
	}
	return r, tokens
}
