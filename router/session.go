package router

import (
	"time"

	"github.com/coppice-llm/coppice/kv"
)

// Claim says that a session is at a worker. Replicas exchange their claims, in
// the events of reservations and by [Router.Claims], and agree by one rule: of two
// claims on a session the one with the higher Stamp wins, and at equal stamps the one
// with the higher Replica. So order and repetition of claims do not matter.
//
// A stamp is higher than all stamps that its router has given or heard. So a router
// that knew of a claim overrules it. Of two claims without knowledge of each other the
// later one wins, as far as epochs are times in nanoseconds and clocks agree (a hybrid
// clock: Kulkarni et al. 2014, "Logical Physical Clocks").
//
// A router applies each claim once: the claim of a Reserved event when it makes the
// reservation, or late, for one that has been released. A repetition is ignored, so it
// does not restore a session that was forgotten.
type Claim struct {
	Session uint64
	Stamp   uint64    // 1 to MaxStamp
	Replica ReplicaID // the router that made it
	Worker  kv.Rank
	Nowhere bool          // there is no Worker: the session's only request was rolled back
	Age     time.Duration // since its router made it, as known to the teller
}

// MaxStamp is the highest stamp. As nanoseconds it is in the year 2116.
const MaxStamp = 1 << 62

// sound reports whether the fields of a claim are in range.
func (c *Claim) sound() bool {
	return c.Session != 0 && c.Stamp >= 1 && c.Stamp <= MaxStamp && c.Replica != 0 && c.Age >= 0
}

// sessions maps each session to the worker of its last request. The map is bounded by
// MaxSessions and ordered by the time of this router's last news, so the entry to
// forget is at the head.
type sessions struct {
	cfg           *Config
	index         table
	entries       []session
	free          []int32
	head          int32 // longest without news
	tail          int32
	stamp         uint64 // the highest that was given or heard
	claimsApplied uint64 // claims of replicas that won
}

// session is the winning claim on a session.
type session struct {
	id         uint64 // 0: the entry is free
	worker     kv.Rank
	nowhere    bool // no worker: its only request was rolled back
	touched    time.Duration
	stamp      uint64
	by         ReplicaID
	prev, next int32
}

func newSessions(cfg *Config) sessions {
	return sessions{cfg: cfg, index: newTable(mix(cfg.Seed, 1), 16), head: none, tail: none}
}

// get returns the worker of a session, if the session is known and not older than
// SessionTTL.
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

// put stores a claim in place of the session's previous one, and forgets sessions that
// are too old or too many. It moves the session to the tail.
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

// forget unlinks an entry and frees it.
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

// nextStamp returns a stamp above all that were given or heard and, if Epoch is a time
// in nanoseconds, not below the present time.
func (s *sessions) nextStamp(now time.Duration) uint64 {
	s.stamp = min(MaxStamp, max(s.stamp+1, min(s.cfg.Epoch, MaxStamp)+uint64(now)))
	return s.stamp
}

// claim puts a session at the worker of a reservation.
func (s *sessions) claim(now time.Duration, e *reservation, id uint64, worker kv.Rank) {
	if s.cfg.SessionTTL == 0 || id == 0 {
		return
	}
	e.session = id
	e.previous, e.hadPrevious = s.get(now, id)
	e.stamp = s.nextStamp(now)
	s.put(now, session{id: id, worker: worker, touched: now, stamp: e.stamp, by: s.cfg.Replica})
}

// unclaim undoes the claim of a reservation, unless a later claim has replaced it: the
// session returns to its previous worker. Replicas learn it as a later claim, which is
// stored in the reservation and leaves with its Released event. Without replicas a
// session without previous worker is simply forgotten.
func (s *sessions) unclaim(now time.Duration, e *reservation) {
	at := int32(noEntry)
	if e.session != 0 {
		at = s.index.get(key{a: e.session})
	}
	if at == noEntry || s.entries[at].stamp != e.stamp || s.entries[at].by != s.cfg.Replica {
		return
	}
	if !e.hadPrevious && s.cfg.Replica == 0 {
		s.forget(at)
		return
	}
	// A rollback is a later claim, so it wins over this reservation's claim at replicas, in
	// whatever order the two arrive.
	e.unclaimed, e.stamp = true, s.nextStamp(now)
	s.entries[at].worker, s.entries[at].nowhere, s.entries[at].stamp = e.previous, !e.hadPrevious, e.stamp
}

// applyClaim applies a claim of a replica, if it wins over the known one and is not too old.
func (s *sessions) applyClaim(now time.Duration, c *Claim) {
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
		return // the next put would forget it first
	}
	s.put(now, session{id: c.Session, worker: c.Worker, nowhere: c.Nowhere, touched: touched, stamp: c.Stamp, by: c.Replica})
	s.claimsApplied++
}
