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
	s.running.reserved = -1
	blocked := s.queue.blocked
	if blocked != nil && (blocked.lane == nil || s.queue.closed(blocked.lane) || !s.queue.hasTurn(blocked)) {
		blocked = nil // it does not wait for room, so it stops no other
	}
	if blocked != nil && !s.outranked(blocked) {
		if !s.try(now, p, blocked) {
			return
		}
		blocked = nil
	}
	for range maxTries {
		if s.cfg.Policy != Priority && (len(s.room.slots) == 0 || !s.cfg.hasBudget(s.running.prefilling, budget, nil)) {
			break
		}
		q := s.queue.candidate(s.work, len(s.room.slots))
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
			s.queue.keepRoomFor(s.queue.skipped)
		} else if slots == 0 && q.lane != nil {
			break // there is no slot for those after it either
		}
		if s.queue.blocked != nil && (s.queue.blocked != was || s.queue.blocked == q) {
			break
		}
	}
	s.queue.rejoin()
}

// outranked reports whether the policy Priority takes another one before b, however
// often b was overtaken.
func (s *Scheduler) outranked(b *sequence) bool {
	if s.cfg.Policy != Priority {
		return false
	}
	q := s.queue.best(s.work)
	return q != nil && s.cfg.ranks(q, b) > 0
}

// try starts q if it can, or puts it out of the way of the pass.
func (s *Scheduler) try(now time.Duration, p *Plan, q *sequence) bool {
	f := s.prefixes.find(q)
	if leader, until := s.prefixes.leaderOf(q, f.match.Tokens+f.boundary); leader != nil {
		s.queue.follow(q, leader, until)
		return false
	}
	if s.fetches != nil && s.fetches.first(now, q, &f) {
		return false
	}
	if s.queue.excluded(q) { // it is long, as much of it was evicted
		s.queue.rerank(q)
		return false
	}
	reserve := s.running.reserve(q)
	fits, copies := s.room.fits(&f, q, reserve)
	if !fits && s.fetches.giveWayFor(q, &f, reserve) {
		f = s.prefixes.find(q)
		fits, copies = s.room.fits(&f, q, reserve)
	}
	if !fits && s.cfg.Policy == Priority {
		if d := s.room.startDemand(q, f.match, false, reserve); s.preemptFor(now, &d) {
			f = s.prefixes.find(q) // what the victims had computed is in the tree now
			if fits, copies = s.room.fits(&f, q, reserve); !fits {
				panic(fmt.Sprintf("scheduler: request %d does not fit, though others were preempted for it", q.req.ID))
			}
		}
	}
	if !fits {
		if len(s.room.slots) > 0 {
			s.queue.bypass(q)
		}
		return false
	}
	if !copies {
		f.from, f.boundary = nil, 0
	}
	s.hold(p, q, &f)
	s.start(now, p, q)
	s.running.reserveFor(q)
	s.queue.lastLong = s.cfg.lastLong(s.running.prefilling)
	return true
}
