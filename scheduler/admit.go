package scheduler

import (
	"fmt"
	"time"
)

// maxTries bounds how many candidates a pass looks at, so that a step costs the
// same however long the queue is. The next step goes on where it matters: followers
// have left their lanes by then.
const maxTries = 64

// admit starts waiting sequences in the policy's order while the budget, the
// slots and the pages last; under the policy Priority it preempts for them, which is
// why it comes before decoding sequences get their rows. The admitted ones get theirs
// among the prompts that were admitted before.
//
// A candidate that can follow a prompt in flight leaves its lane. One that does not fit
// is overtaken by others, MaxBypass times: then it blocks the queue, and all that comes
// free is its own.
func (s *Scheduler) admit(now time.Duration, p *Plan) {
	if s.queue.size == 0 || len(s.room.slots) == 0 && s.cfg.Policy != Priority {
		return
	}
	budget := s.budget.prompts(s.decoding())
	if budget == 0 {
		return
	}
	s.room.reserved = -1
	blocked := s.queue.blocked
	if blocked != nil && (blocked.lane == nil || s.queue.closed(blocked.lane) || !s.queue.hasTurn(blocked)) {
		blocked = nil // it waits for others than room, and stops nobody
	}
	if blocked != nil && !outranked(s, blocked) {
		if !s.try(now, p, blocked) {
			return
		}
		blocked = nil
	}
	for range maxTries {
		if s.cfg.Policy != Priority && (len(s.room.slots) == 0 || !s.cfg.hasBudget(s.running.prefilling, budget, nil)) {
			break
		}
		q := s.candidate()
		if q == nil || s.cfg.Policy == Priority && !s.cfg.hasBudget(s.running.prefilling, budget, q) {
			break
		}
		if blocked != nil && s.cfg.ranks(q, blocked) <= 0 {
			s.try(now, p, blocked)
			break
		}
		was, slots := s.queue.blocked, len(s.room.slots)
		if s.try(now, p, q) {
			s.metrics.Bypasses += uint64(len(s.queue.skipped))
			s.reserveFor(s.queue.skipped)
		} else if slots == 0 && q.lane != nil {
			break // there is no slot for those after it either
		}
		if s.queue.blocked != nil && (s.queue.blocked != was || s.queue.blocked == q) {
			break
		}
	}
	for i, q := range s.queue.skipped {
		if q.lane == nil && q.place == waiting {
			s.queue.enterLane(q)
		}
		s.queue.skipped[i] = nil
	}
	s.queue.skipped = s.queue.skipped[:0]
}

// outranked reports whether the policy Priority takes another one before b, however
// often b was overtaken.
func outranked(s *Scheduler, b *sequence) bool {
	if s.cfg.Policy != Priority {
		return false
	}
	q := s.queue.best(s.work)
	return q != nil && s.cfg.ranks(q, b) > 0
}

// candidate returns the sequence that the policy takes next, ranked by what is cached
// of it now: some may have been evicted since it was ranked.
func (s *Scheduler) candidate() *sequence {
	w := &s.queue
	w.owe(s.queue.skipped)
	// Under Priority it is tried once in a pass, and does not keep others from preempting.
	oldest := s.cfg.Policy != Priority || len(s.room.slots) > 0 && len(s.queue.skipped) == 0
	if oldest && w.needsOldest() && (w.admissions+1)%uint64(s.cfg.OldestEvery) == 0 {
		if q := w.longestWaiting(); q != nil {
			w.lookup(q)
			return q
		}
	}
	for range maxTries {
		q := w.best(s.work)
		if q == nil {
			return nil
		}
		was := q.cached
		w.lookup(q)
		if !w.ranksByCache(q) || q.cached+w.index.blockTokens > was {
			return q
		}
		w.rerank(q) // it was ranked too high
	}
	return w.best(s.work)
}

// try starts q if it can, or puts it out of the way of the pass.
func (s *Scheduler) try(now time.Duration, p *Plan, q *sequence) bool {
	f := s.find(q)
	if leader, until := s.leaderOf(q, f.match.Tokens+f.boundary); leader != nil {
		s.follow(q, leader, until)
		return false
	}
	if s.tiers != nil && fetchFirst(s, now, q, &f) {
		return false
	}
	if s.queue.excluded(q) { // it is long, as much of it was evicted
		s.queue.rerank(q)
		return false
	}
	reserve := s.reserve(q)
	fits, copies := s.room.fits(&f, q, reserve)
	if !fits && yieldFor(s, q, &f, reserve) {
		f = s.find(q)
		fits, copies = s.room.fits(&f, q, reserve)
	}
	if !fits && s.cfg.Policy == Priority {
		if d := s.room.startDemand(q, f.match, false, reserve); s.preemptFor(now, &d) {
			f = s.find(q) // what the victims had computed is in the tree now
			if fits, copies = s.room.fits(&f, q, reserve); !fits {
				panic(fmt.Sprintf("scheduler: request %d does not fit, though others were preempted for it", q.req.ID))
			}
		}
	}
	if !fits {
		if len(s.room.slots) > 0 {
			s.bypass(q)
		}
		return false
	}
	if !copies {
		f.from, f.boundary = nil, 0
	}
	s.hold(p, q, &f)
	s.start(now, p, q)
	if s.room.reserved >= 0 {
		s.room.reserved += s.classes.growth(q, s.info.PageTokens)
	}
	s.queue.lastLong = s.cfg.lastLong(s.running.prefilling)
	return true
}

// find looks for what there is of q.
func (s *Scheduler) find(q *sequence) (f found) {
	f.match = s.queue.lookup(q)
	f.from, f.boundary = s.openPage(q, f.match)
	return f
}

// bypass lets others be admitted before q, which does not fit: MaxBypass of them since
// it was first found so.
func (s *Scheduler) bypass(q *sequence) {
	if q == s.queue.blocked {
		return
	}
	if !q.unfit {
		q.unfit, q.unfitAt = true, s.queue.admissions
	}
	s.queue.leaveLane(q)
	s.queue.skipped = append(s.queue.skipped, q)
	s.reserveFor(s.queue.skipped[len(s.queue.skipped)-1:])
}

// reserveFor keeps room for the first of these that was bypassed MaxBypass times.
func (s *Scheduler) reserveFor(unfit []*sequence) {
	for _, q := range unfit {
		if s.queue.blocked == nil && q.place == waiting && s.queue.admissions-q.unfitAt >= uint64(s.cfg.MaxBypass) && !s.queue.excluded(q) {
			s.queue.blocked = q
		}
	}
}
