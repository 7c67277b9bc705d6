package router

import (
	"fmt"
	"time"

	"github.com/coppice-llm/coppice/kv"
)

// Claim says where a session is. Replicas tell each other their claims, in the events
// of reservations and by [Router.Claims], and agree by one rule: of two claims on a
// session the one with the higher Stamp counts, of equal ones that of the higher
// Replica. So it does not matter in which order and how often they come.
//
// A stamp is higher than all that its router had given or heard, so who chose a
// worker knowing of a claim overrules it; of choices that did not know of each other
// the later one counts, as far as epochs are times in nanoseconds and clocks agree (a
// hybrid clock: Kulkarni et al. 2014, "Logical Physical Clocks").
//
// A router believes each claim once. That of a Reserved event counts when it makes its
// reservation, or is late for its release; what comes again says nothing, so it does
// not bring back a session that was forgotten.
type Claim struct {
	Session uint64
	Stamp   uint64    // 1 to MaxStamp
	Replica ReplicaID // who made it
	Worker  kv.Rank
	Nowhere bool          // there is no Worker: the session's only request was taken back
	Age     time.Duration // since its router made it, as its teller knows
}

// MaxStamp bounds stamps. As nanoseconds it is the year 2116.
const MaxStamp = 1 << 62

func (c *Claim) sound() bool {
	return c.Session != 0 && c.Stamp >= 1 && c.Stamp <= MaxStamp && c.Replica != 0 && c.Age >= 0
}

// heed takes a claim, and tells whether the session is where it says from now on.
func (r *Router) heed(c *Claim) bool {
	s := &r.sessions
	s.stamp = max(s.stamp, c.Stamp)
	if c.Age >= s.ttl {
		return false
	}
	touched := r.now - c.Age
	at := s.index.get(key{a: c.Session})
	if at != noEntry {
		if e := &s.entries[at]; e.stamp > c.Stamp || e.stamp == c.Stamp && e.by >= c.Replica {
			return false
		}
	} else if s.index.n >= s.most && s.entries[s.head].touched > touched {
		return false // it would be the first to be forgotten
	}
	s.put(r.now, session{id: c.Session, worker: c.Worker, nowhere: c.Nowhere, touched: touched, stamp: c.Stamp, by: c.Replica})
	r.metrics.Claims++
	return true
}

// heedEvent takes the claim of an event, if it has one.
func (r *Router) heedEvent(ev *Event) {
	if ev.Session != 0 {
		r.heed(&Claim{Session: ev.Session, Stamp: ev.Stamp, Replica: ev.Replica, Worker: ev.Worker, Nowhere: ev.Nowhere})
	}
}

// Claims appends to dst the claims that are for this router to tell to one who may have
// missed them, in no order: its own, those of who has left, and those of who has restarted
// from before that. It looks at the next n
// of its places from the given one on, and returns where to go on, 0 at the end. What
// is claimed between two calls may be missing: the events of that time have it.
func (r *Router) Claims(now time.Duration, from, n int, dst []Claim) (_ []Claim, next int) {
	r.advance(now)
	s := &r.sessions
	to := min(from+n, len(s.entries))
	for i := from; i < to; i++ {
		e := &s.entries[i]
		age := r.now - e.touched
		if e.id == 0 || age >= s.ttl || e.by != r.cfg.Replica && r.tells(e.by, e.stamp) {
			continue
		}
		dst = append(dst, Claim{Session: e.id, Stamp: e.stamp, Replica: e.by, Worker: e.worker, Nowhere: e.nowhere, Age: age})
	}
	if to == len(s.entries) {
		to = 0
	}
	return dst, to
}

// tells tells whether a replica is there and knows of a claim that it made: stamps are
// never below the epoch in which they are given.
func (r *Router) tells(by ReplicaID, stamp uint64) bool {
	at := r.indexOfPeer.get(key{a: uint64(by)})
	return at != noEntry && stamp >= min(r.peers[at].epoch, MaxStamp)
}

// ApplyClaims takes claims that a replica tells, its own or of others, and returns how
// many it refused as malformed.
func (r *Router) ApplyClaims(now time.Duration, claims []Claim) (refused int) {
	r.advance(now)
	for i := range claims {
		if c := &claims[i]; c.sound() {
			r.heed(c)
		} else {
			refused++
			r.metrics.Rejected++
		}
	}
	r.verify()
	return refused
}

// check holds the list of sessions against the index.
func (s *sessions) check() error {
	n, last := 0, int32(none)
	for at := s.head; at != none; at = s.entries[at].next {
		e := &s.entries[at]
		if e.id == 0 || e.prev != last || s.index.get(key{a: e.id}) != at || e.stamp > s.stamp {
			return fmt.Errorf("router: session %d at %d has stamp %d of %d, comes after %d and not %d, and is found at %d",
				e.id, at, e.stamp, s.stamp, e.prev, last, s.index.get(key{a: e.id}))
		}
		last = at
		if n++; n > s.index.n {
			break
		}
	}
	if n != s.index.n || last != s.tail || n+len(s.free) != len(s.entries) || n > s.most {
		return fmt.Errorf("router: %d sessions of at most %d are listed, %d indexed, %d free of %d; the last is %d, not %d", n, s.most, s.index.n, len(s.free), len(s.entries), last, s.tail)
	}
	return nil
}
