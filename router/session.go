package router

import "time"

// sessions remembers which worker each session's last request went to: a bounded
// map in the order of use.
type sessions struct {
	ttl     time.Duration // 0: nothing is remembered
	most    int
	index   table
	entries []session
	free    []int32
	head    int32 // used longest ago
	tail    int32
	stamp   uint64 // of the last set
}

type session struct {
	id         uint64
	worker     Worker
	touched    time.Duration
	stamp      uint64
	prev, next int32
}

func newSessions(seed uint64, most int, ttl time.Duration) sessions {
	return sessions{ttl: ttl, most: most, index: newTable(seed, 16), head: none, tail: none}
}

// get is the worker of a session, if it is remembered at now.
func (s *sessions) get(now time.Duration, id uint64) (Worker, bool) {
	if s.ttl == 0 || id == 0 {
		return Worker{}, false
	}
	at := s.index.get(key{a: id})
	if at == noEntry || now-s.entries[at].touched >= s.ttl {
		return Worker{}, false
	}
	return s.entries[at].worker, true
}

// set remembers a worker, and returns the one before, if there was one.
func (s *sessions) set(now time.Duration, id uint64, w Worker) (previous Worker, had bool, stamp uint64) {
	if s.ttl == 0 {
		return Worker{}, false, 0
	}
	previous, had = s.get(now, id)
	if at := s.index.get(key{a: id}); at != noEntry {
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
	s.stamp++
	s.entries[at] = session{id: id, worker: w, touched: now, stamp: s.stamp, prev: s.tail, next: none}
	if s.tail == none {
		s.head = at
	} else {
		s.entries[s.tail].next = at
	}
	s.tail = at
	s.index.put(key{a: id}, at)
	return previous, had, s.stamp
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
	s.free = append(s.free, at)
}

// restore undoes the set of a reservation, if no other came after it.
func (s *sessions) restore(e *reservation) {
	if s.ttl == 0 || e.session == 0 {
		return
	}
	at := s.index.get(key{a: e.session})
	if at == noEntry || s.entries[at].stamp != e.stamp {
		return
	}
	if e.had {
		s.entries[at].worker = e.previous
	} else {
		s.forget(at)
	}
}
