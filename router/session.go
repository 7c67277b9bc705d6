package router

import (
	"time"

	"github.com/coppice-llm/coppice/kv"
)

// sessions remembers which worker each session's last request went to: a bounded
// map in the order in which this router was told.
type sessions struct {
	ttl     time.Duration // 0: nothing is remembered
	most    int
	index   table
	entries []session
	free    []int32
	head    int32 // told longest ago
	tail    int32
	stamp   uint64 // the latest that was given or heard
}

// session is the latest claim on one, see [Claim].
type session struct {
	id         uint64 // 0: the entry is free
	worker     kv.Rank
	nowhere    bool // it has none: its only request was taken back
	touched    time.Duration
	stamp      uint64
	by         ReplicaID
	prev, next int32
}

func newSessions(seed uint64, most int, ttl time.Duration) sessions {
	return sessions{ttl: ttl, most: most, index: newTable(seed, 16), head: none, tail: none}
}

// get is the worker of a session, if it is remembered at now.
func (s *sessions) get(now time.Duration, id uint64) (kv.Rank, bool) {
	if s.ttl == 0 || id == 0 {
		return kv.Rank{}, false
	}
	at := s.index.get(key{a: id})
	if at == noEntry || s.entries[at].nowhere || now-s.entries[at].touched >= s.ttl {
		return kv.Rank{}, false
	}
	return s.entries[at].worker, true
}

// put remembers a claim in the place of the one before. What is too old or too much
// is forgotten.
func (s *sessions) put(now time.Duration, e session) {
	if at := s.index.get(key{a: e.id}); at != noEntry {
		s.forget(at)
	}
	for s.head != none && (now-s.entries[s.head].touched >= s.ttl || s.index.n >= s.most) {
		s.forget(s.head)
	}
	at := int32(len(s.entries))
	if n := len(s.free); n > 0 {
		at = s.free[n-1]
		s.free = s.free[:n-1]
	} else {
		s.entries = append(s.entries, session{})
	}
	e.prev, e.next = s.tail, none
	s.entries[at] = e
	if s.tail == none {
		s.head = at
	} else {
		s.entries[s.tail].next = at
	}
	s.tail = at
	s.index.put(key{a: e.id}, at)
}

func (s *sessions) forget(at int32) {
	e := &s.entries[at]
	if e.prev == none {
		s.head = e.next
	} else {
		s.entries[e.prev].next = e.next
	}
	if e.next == none {
		s.tail = e.prev
	} else {
		s.entries[e.next].prev = e.prev
	}
	s.index.delete(key{a: e.id})
	*e = session{}
	s.free = append(s.free, at)
}

// Session is the worker that a session has, and whether it has one. It may not be there
// any more, or be busy.
func (r *Router) Session(now time.Duration, id uint64) (kv.Rank, bool) {
	return r.sessions.get(max(now, r.now), id)
}

// nextStamp is later than all that was given or heard, and than the time if Epoch is
// one in nanoseconds.
func (r *Router) nextStamp() uint64 {
	s := &r.sessions
	s.stamp = min(MaxStamp, max(s.stamp+1, min(r.cfg.Epoch, MaxStamp)+uint64(r.now)))
	return s.stamp
}

// claim has a session at the worker of a reservation from now on.
func (r *Router) claim(e *reservation, id uint64) {
	s := &r.sessions
	if s.ttl == 0 || id == 0 {
		return
	}
	e.session = id
	e.previous, e.had = s.get(r.now, id)
	e.stamp = r.nextStamp()
	s.put(r.now, session{id: id, worker: r.workers[e.slot].id, touched: r.now, stamp: e.stamp, by: r.cfg.Replica})
}

// unclaim undoes the claim of a reservation, if no other came after it: the session
// is where it was. Replicas are told by a later claim, which stands in the
// reservation then.
func (r *Router) unclaim(e *reservation) {
	s := &r.sessions
	at := int32(noEntry)
	if e.session != 0 {
		at = s.index.get(key{a: e.session})
	}
	if at == noEntry || s.entries[at].stamp != e.stamp || s.entries[at].by != r.cfg.Replica {
		return
	}
	if !e.had && !r.replicated() {
		s.forget(at)
		return
	}
	e.unclaimed, e.stamp = true, r.nextStamp()
	s.entries[at].worker, s.entries[at].nowhere, s.entries[at].stamp = e.previous, !e.had, e.stamp
}
