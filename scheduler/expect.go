package scheduler

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// expectLead is how long before an expected turn its prefix is fetched. A disk of 3 GB/s reads 30 GB in it,
// the KV of some 300,000 tokens of 100 KB. An earlier fetch would hold pages without use.
//
// expectGrace is how long after the expected time a fetched prefix is kept for a turn that is late.
const (
	expectLead  = 10 * time.Second
	expectGrace = 30 * time.Second
)

// maxExpectation bounds how far ahead a turn can be expected.
const maxExpectation = 24 * time.Hour

// expectation is a turn of a session that ExpectSession has announced.
type expectation struct {
	due   time.Duration // the fetch begins; 0: no turn is expected
	until time.Duration // the fetched prefix is kept
	q     *sequence     // the fetch, see prefetch; nil: not begun, or there was nothing to fetch
}

// ExpectSession announces that a turn of a session comes in the given time. What the session's last turn
// left is fetched from lower tiers before that, at most expectLead ahead, and kept on the device until the
// turn is admitted, or expectGrace has passed, or requests need the pages. Of a quarter of the pool at most
// such prefixes are fetched. Under the policy radixcache.Session, what is on the device already is evicted last
// in that time. A later call replaces an earlier one. Errors: ErrNoCache; ErrInvalid unless 0 <= in <= 24 h; ErrNoSession.
func (s *Scheduler) ExpectSession(now time.Duration, ref SessionRef, in time.Duration) error {
	if s.cache == nil {
		return ErrNoCache
	}
	if in < 0 || in > maxExpectation {
		return fmt.Errorf("%w: a turn in %v, want 0 to %v", ErrInvalid, in, maxExpectation)
	}
	x, err := s.sessions.find(ref)
	if err != nil {
		return err
	}
	s.unexpect(x)
	x.expect.due, x.expect.until = now+in-min(in, expectLead), now+in+expectGrace
	s.sessions.expects(x)
	s.tickSessions(now)
	s.verify()
	return nil
}

// expects files x in the list of expected turns.
func (ss *sessions) expects(x *session) {
	at, _ := slices.BinarySearchFunc(ss.expected, x.wake(), func(o *session, t time.Duration) int {
		if o.wake() <= t {
			return -1
		}
		return 1
	})
	ss.expected = slices.Insert(ss.expected, at, x)
}

// wake returns the time at which the expected turn needs something.
func (x *session) wake() time.Duration {
	if x.expect.q != nil || x.expect.due == 0 {
		return x.expect.until
	}
	return x.expect.due
}

// unexpect ends what ExpectSession began: the turn has come, or it will not.
func (s *Scheduler) unexpect(x *session) {
	if i := slices.Index(s.sessions.expected, x); i >= 0 {
		s.sessions.expected = slices.Delete(s.sessions.expected, i, i+1)
	}
	if q := x.expect.q; q != nil {
		s.fetches.leave(q)
		q.place = ended
	}
	x.expect = expectation{}
}

// tickSessions begins the fetches of expected turns that are due, and ends those whose turn did not come.
func (s *Scheduler) tickSessions(now time.Duration) {
	for len(s.sessions.expected) > 0 && s.sessions.expected[0].wake() <= now {
		x := s.sessions.expected[0]
		if x.expect.q != nil || x.expect.until <= now {
			s.unexpect(x)
			continue
		}
		s.sessions.expected = slices.Delete(s.sessions.expected, 0, 1)
		s.cache.Tick(now)
		s.cache.ExpectTurn(x.id)
		if x.expect.q = s.prefetch(now, x); x.expect.q == nil {
			x.expect = expectation{}
			continue
		}
		s.sessions.expects(x)
	}
}

// dropExpectations ends all expectations.
func (s *Scheduler) dropExpectations() {
	for len(s.sessions.expected) > 0 {
		s.unexpect(s.sessions.expected[0])
	}
}

// prefetch begins to fetch what the last turn of x left, and returns the sequence that stands for the turn
// to come: it fetches as a request does and keeps what it has fetched, but it is in no queue and never runs.
// Requests that come in the meantime follow it, as they follow each other. Its priority is the lowest, so
// it gives way before all others. prefetch returns nil if there is nothing to fetch, or no room.
func (s *Scheduler) prefetch(now time.Duration, x *session) *sequence {
	if s.fetches == nil || len(x.tokens) < 2 {
		return nil
	}
	g := &group{req: Request{
		Namespace: x.ref.Namespace, PublicTokens: x.public, Media: x.media, Tenant: x.ref.Tenant, Session: x.ref.Name,
		Priority: math.MinInt32, Prompt: x.tokens,
	}}
	q := &sequence{req: &g.req, group: g, arrival: s.arrived, tokens: x.tokens[:len(x.tokens):len(x.tokens)], prompt: len(x.tokens), place: expected}
	s.arrived++
	q.cache.ownFrom = noTokens
	s.running.reserved = -1
	if !s.fetches.seek(now, q, s.cache.Match(x.key()), true) {
		return nil
	}
	s.fetches.tiers.begun()
	return q
}

// Prefetching returns the number of expected turns whose prefix is being fetched now.
func (s *Scheduler) Prefetching() (n int) {
	for _, x := range s.sessions.expected {
		if x.expect.q != nil && x.expect.q.place == fetching {
			n++
		}
	}
	return n
}

// early reports whether q stands for an expected turn, and is no request.
func (q *sequence) early() bool { return len(q.group.samples) == 0 && q.place == fetching }

// admittedTurn ends the expectation of the session whose turn q was admitted: q's own pin holds the prefix now.
func (s *Scheduler) admittedTurn(q *sequence) {
	if q.req.Session == "" || len(s.sessions.expected) == 0 {
		return
	}
	if x := s.sessions.byRef[q.req.sessionRef()]; x != nil && x.expect.q != nil {
		s.unexpect(x)
	}
}
