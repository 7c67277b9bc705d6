package router

import (
	"time"

	"github.com/coppice-llm/coppice/internal/heap"
	"github.com/coppice-llm/coppice/kv"
)

// Claim says that a session is at a worker. Replicas exchange their claims, in the events of
// reservations and by [Router.Claims], and agree by one rule: of two claims on a session the one
// with the higher Stamp wins, and at equal stamps the one with the higher Replica. So order and
// repetition of claims do not matter.
//
// A router gives each new claim a stamp above all stamps that it has given or received. So a new
// claim wins over every claim that its router knew. If two routers claim a session without
// knowing of each other's claim, the later one wins, provided that epochs are times in
// nanoseconds and the clocks agree (a hybrid clock: Kulkarni et al. 2014, "Logical Physical
// Clocks").
//
// A router applies the claim of a Reserved event once: when it makes the reservation, or when
// the event arrives after the reservation's release. A repetition is ignored, so it does not
// restore a session that was forgotten.
type Claim struct {
	Session uint64
	Stamp   uint64    // 1 to MaxStamp
	Replica ReplicaID // the router that made it
	Worker  kv.Rank
	Nowhere bool          // there is no Worker: the session's only request was rolled back
	Age     time.Duration // since its router made it, as known to the router that sends it
}

// MaxStamp is the highest stamp. As nanoseconds it is in the year 2116.
const MaxStamp = 1 << 62

// sound reports whether the fields of a claim are in range.
func (c *Claim) sound() bool {
	return c.Session != 0 && c.Stamp >= 1 && c.Stamp <= MaxStamp && c.Replica != 0 && c.Age >= 0
}

// sessions maps each session to the worker of its last request. It holds at most MaxSessions. A
// heap orders the entries by age, so the next one to forget is first.
type sessions struct {
	cfg           *Config
	index         table
	entries       sessionSlab
	free          []int32
	byAge         heap.Heap[sessionAge, sessionSlab]
	stored        uint64 // claims stored so far
	stamp         uint64 // the highest stamp that this router gave or received
	claimsApplied uint64 // claims of replicas that won
}

// session is the winning claim on a session.
type session struct {
	id      uint64 // 0: the entry is free
	worker  kv.Rank
	nowhere bool // no worker: its only request was rolled back
	touched time.Duration
	stamp   uint64
	by      ReplicaID
	heapAt  int32 // where it is in byAge
}

type sessionSlab []session

// Place notes that a is now at index at of the heap. It implements heap.Places.
func (s sessionSlab) Place(a sessionAge, at int) { s[a.at].heapAt = int32(at) }

// sessionAge is a session's place in the order of age.
type sessionAge struct {
	touched time.Duration
	number  uint64 // of the claim among those stored: decides between equal times
	at      int32  // of sessions.entries
}

// Before reports whether a is older than b. It implements heap.Element.
func (a sessionAge) Before(b sessionAge) bool {
	return a.touched < b.touched || a.touched == b.touched && a.number < b.number
}

func newSessions(cfg *Config) sessions {
	return sessions{cfg: cfg, index: newTable(mix(cfg.Seed, 1))}
}

// oldest returns the session to forget next, nil if there is none.
func (s *sessions) oldest() *session {
	if len(s.byAge.Items) == 0 {
		return nil
	}
	return &s.entries[s.byAge.Items[0].at]
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

// put stores claim e in place of the session's previous claim. Before, it forgets the oldest
// sessions while they exceed SessionTTL or there are MaxSessions.
func (s *sessions) put(now time.Duration, e session) {
	if at := s.index.get(key{a: e.id}); at != noEntry {
		s.forget(at)
	}
	for o := s.oldest(); o != nil && (now-o.touched >= s.cfg.SessionTTL || s.index.Len() >= s.cfg.MaxSessions); o = s.oldest() {
		s.forget(s.byAge.Items[0].at)
	}
	at := occupy(&s.entries, &s.free)
	s.entries[at] = e
	s.stored++
	s.byAge.Push(s.entries, sessionAge{e.touched, s.stored, at})
	s.index.put(key{a: e.id}, at)
}

// forget removes entry at and frees it.
func (s *sessions) forget(at int32) {
	e := &s.entries[at]
	s.byAge.Remove(s.entries, int(e.heapAt))
	s.index.delete(key{a: e.id})
	*e = session{}
	s.free = append(s.free, at)
}

// nextStamp returns a stamp above all that were given or received. If Epoch is a time in
// nanoseconds, the stamp is also at least the present time. It never exceeds MaxStamp.
func (s *sessions) nextStamp(now time.Duration) uint64 {
	s.stamp = min(MaxStamp, max(s.stamp+1, min(s.cfg.Epoch, MaxStamp)+uint64(now)))
	return s.stamp
}

// claim binds session id to the worker of the new reservation e, and notes in e how to undo it.
// Without SessionTTL or with id 0 it does nothing.
func (s *sessions) claim(now time.Duration, e *reservation, id uint64, worker kv.Rank) {
	if s.cfg.SessionTTL == 0 || id == 0 {
		return
	}
	e.session = id
	e.previous, e.hadPrevious = s.get(now, id)
	e.stamp = s.nextStamp(now)
	s.put(now, session{id: id, worker: worker, touched: now, stamp: e.stamp, by: s.cfg.Replica})
}

// unclaim undoes the claim of reservation e, unless a later claim has replaced it: the session
// returns to its previous worker. For replicas the undoing is itself a later claim: it is stored
// in e, and the Released event carries it. If this router has no replicas and the session had no
// previous worker, the session is forgotten.
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

// applyClaim applies a claim of a replica, unless the known claim wins over it, it is as old as
// SessionTTL, or the table is full of newer ones.
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
	} else if s.index.Len() >= s.cfg.MaxSessions && s.oldest().touched > touched {
		return // the next put would forget it first
	}
	s.put(now, session{id: c.Session, worker: c.Worker, nowhere: c.Nowhere, touched: touched, stamp: c.Stamp, by: c.Replica})
	s.claimsApplied++
}
