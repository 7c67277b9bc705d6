package router

import (
	"time"

	"github.com/coppice-llm/coppice/kv"
)

// Claim says where a session is. Replicas tell each other their claims, in the events
// of reservations and by [Router.Claims], and agree by one rule: of two claims on a
// session the one with the higher Stamp counts, of equal ones that of the higher
// Replica. So it does not matter in which order and how often they come.
//
// A stamp is higher than all that its router had given or heard, so a router that chose
// knowing of a claim overrules it; of choices that did not know of each other
// the later one counts, as far as epochs are times in nanoseconds and clocks agree (a
// hybrid clock: Kulkarni et al. 2014, "Logical Physical Clocks").
//
// A router believes each claim once. That of a Reserved event counts when it makes its
// reservation, or is late for its release; what comes again says nothing, so it does
// not bring back a session that was forgotten.
type Claim struct {
	Session uint64
	Stamp   uint64    // 1 to MaxStamp
	Replica ReplicaID // whose claim it is
	Worker  kv.Rank
	Nowhere bool          // there is no Worker: the session's only request was taken back
	Age     time.Duration // since its router made it, as its teller knows
}

// MaxStamp bounds stamps. As nanoseconds it is the year 2116.
const MaxStamp = 1 << 62

func (c *Claim) sound() bool {
	return c.Session != 0 && c.Stamp >= 1 && c.Stamp <= MaxStamp && c.Replica != 0 && c.Age >= 0
}

// sessions remembers which worker each session's last request went to: a bounded
// map in the order in which this router was told.
type sessions struct {
	cfg     *Config
	index   table
	entries []session
	free    []int32
	head    int32 // told longest ago
	tail    int32
	stamp   uint64 // the latest that was given or heard
	heeded  uint64 // claims of replicas that were the latest
}

// session is the latest claim on one.
type session struct {
	id         uint64 // 0: the entry is free
	worker     kv.Rank
	nowhere    bool // it has none: its only request was taken back
	touched    time.Duration
	stamp      uint64
	by         ReplicaID
	prev, next int32
}

func newSessions(cfg *Config) sessions {
	return sessions{cfg: cfg, index: newTable(mix(cfg.Seed, 1), 16), head: none, tail: none}
}

// get is the worker of a session, if it is remembered at now.
func (s *sessions) get(now time.Duration, id uint64) (kv.Rank, bool) {
	if s.cfg.SessionTTL == 0 || id == 0 {
		return kv.Rank{}, false
	}
	at := s.index.get(key{a: id})
	if at == noEntry || s.entries[at].nowhere || now-s.entries[at].touched >= s.cfg.SessionTTL {
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
	for s.head != none && (now-s.entries[s.head].touched >= s.cfg.SessionTTL || s.index.n >= s.cfg.MaxSessions) {
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

// nextStamp is later than all that was given or heard, and than the time if Epoch is
// one in nanoseconds.
func (s *sessions) nextStamp(now time.Duration) uint64 {
	s.stamp = min(MaxStamp, max(s.stamp+1, min(s.cfg.Epoch, MaxStamp)+uint64(now)))
	return s.stamp
}

// claim has a session at the worker of a reservation from now on.
func (s *sessions) claim(now time.Duration, e *reservation, id uint64, worker kv.Rank) {
	if s.cfg.SessionTTL == 0 || id == 0 {
		return
	}
	e.session = id
	e.previous, e.had = s.get(now, id)
	e.stamp = s.nextStamp(now)
	s.put(now, session{id: id, worker: worker, touched: now, stamp: e.stamp, by: s.cfg.Replica})
}

// unclaim undoes the claim of a reservation, if no other came after it: the session
// is where it was. Replicas are told by a later claim, which stands in the
// reservation then.
func (s *sessions) unclaim(now time.Duration, e *reservation) {
	at := int32(noEntry)
	if e.session != 0 {
		at = s.index.get(key{a: e.session})
	}
	if at == noEntry || s.entries[at].stamp != e.stamp || s.entries[at].by != s.cfg.Replica {
		return
	}
	if !e.had && s.cfg.Replica == 0 {
		s.forget(at)
		return
	}
	e.unclaimed, e.stamp = true, s.nextStamp(now)
	s.entries[at].worker, s.entries[at].nowhere, s.entries[at].stamp = e.previous, !e.had, e.stamp
}

// heed takes a claim of a replica.
func (s *sessions) heed(now time.Duration, c *Claim) {
	s.stamp = max(s.stamp, c.Stamp)
	if c.Age >= s.cfg.SessionTTL {
		return
	}
	touched := now - c.Age
	at := s.index.get(key{a: c.Session})
	if at != noEntry {
		if e := &s.entries[at]; e.stamp > c.Stamp || e.stamp == c.Stamp && e.by >= c.Replica {
			return
		}
	} else if s.index.n >= s.cfg.MaxSessions && s.entries[s.head].touched > touched {
		return // it would be the first to be forgotten
	}
	s.put(now, session{id: c.Session, worker: c.Worker, nowhere: c.Nowhere, touched: touched, stamp: c.Stamp, by: c.Replica})
	s.heeded++
}
