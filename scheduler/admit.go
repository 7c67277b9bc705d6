package scheduler

import (
	"fmt"
	"time"
)

// maxTries bounds the candidates of a pass, so that a step costs the same however long the
// queue is. Little is lost: followers and fetching sequences have left their lanes, so the
// next step tries others.
const maxTries = 64

// admit starts waiting sequences in the policy's order while budget, slots and pages last.
// p is the plan being made: admit adds the slots' new owners and the page copies to it.
// share divides the budget later, among the admitted prompts and those that run already.
// Under the policy Priority admit may preempt, so it runs before decode rows are made.
//
// A candidate that can follow a prompt in flight or fetch a prefix leaves its lane. A
// candidate that does not fit is bypassed by others at most MaxBypass times; after that it
// blocks the queue, and all pages that come free are kept for it. The pass, which is one
// call of admit, ends when
//
//   - nothing is left: budget, slots (except under Priority) or candidates,
//   - a sequence that blocks the queue does not fit,
//   - or maxTries candidates were tried.
func (s *Scheduler) admit(now time.Duration, p *Plan) {
	if s.queue.size == 0 || len(s.room.slots) == 0 && !s.cfg.byPriority() {
		return
	}
	budget := s.budget.prompts(s.budget.count(&s.running))
	if budget == 0 {
		return
	}
	s.running.reserved = -1
	blocked := s.queue.blocked
	if blocked != nil && (blocked.wait.lane == nil || s.queue.closed(blocked.wait.lane) || !s.queue.order.hasTurn(&s.queue, blocked)) {
		blocked = nil // it waits for something other than pages, so keeping pages would not help it
	}
	if blocked != nil && !s.queue.outranked(blocked, s.work) {
		if !s.try(now, p, blocked) {
			return
		}
		blocked = nil
	}
	for range maxTries {
		if !s.cfg.byPriority() && (len(s.room.slots) == 0 || !s.cfg.hasBudget(s.running.prefilling, budget, nil)) {
			break
		}
		q := s.queue.candidate(s.work, len(s.room.slots))
		if q == nil || s.cfg.byPriority() && !s.cfg.hasBudget(s.running.prefilling, budget, q) {
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
		} else if slots == 0 && q.wait.lane != nil {
			break // the next candidate would find no slot either
		}
		if s.queue.blocked != nil && (s.queue.blocked != was || s.queue.blocked == q) {
			break
		}
	}
	s.queue.rejoin()
}

// outranked reports whether, under the policy Priority, a waiting sequence has a higher
// priority than b, which blocks the queue. That sequence is tried before b, however often b
// was bypassed. work is Scheduler.work.
func (w *queue) outranked(b *sequence, work uint64) bool {
	if !w.policy.preempts {
		return false
	}
	q := w.best(work)
	return q != nil && w.cfg.ranks(q, b) > 0
}

// try starts q in the plan p and returns true, if it can. Otherwise it returns false, after
// one of these: q waits as a follower, q waits for a fetch, q moves to another lane, or q
// is bypassed for the rest of the pass. Without a free slot, a q that does not fit stays in
// its lane. The attempts go from cheap to expensive: following costs no pages, a fetch
// saves computing, taking the pins of waiting sequences costs reads, and preemption costs
// computed work.
func (s *Scheduler) try(now time.Duration, p *Plan, q *sequence) bool {
	f := s.prefixes.find(q)
	if leader, until := s.prefixes.leaderOf(q, f.match.Tokens+f.boundary); leader != nil {
		s.queue.follow(q, leader, until)
		return false
	}
	if s.fetches != nil && s.fetches.atTurn(now, q, &f) {
		return false
	}
	if s.queue.excluded(q) { // part of it was evicted, so it counts as long now
		s.queue.rerank(q)
		return false
	}
	reserve := s.running.reserve(q)
	fits, copies := s.room.fits(&f, q, reserve)
	if !fits && s.fetches.giveWayFor(q, &f, reserve) {
		f = s.prefixes.find(q)
		fits, copies = s.room.fits(&f, q, reserve)
	}
	if !fits && s.cfg.byPriority() {
		if d := s.room.startDemand(q, f.match, false, reserve); s.preemptFor(now, &d) {
			f = s.prefixes.find(q) // the KV of the victims is in the tree now, and may match
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
