package router

import (
	"math/bits"
	"slices"

	"github.com/coppice-llm/coppice/internal/enum"
)

// Verdict is the effect of an event. Only Rejected means a fault.
type Verdict uint8

// The verdicts. Nothing is wrong with any but Rejected.
const (
	Applied   Verdict = iota
	Made              // applied, and it made an unknown reservation
	Duplicate         // without news
	Early             // about an unknown reservation; remembered for a while
	Stale             // of an earlier epoch, about an ended reservation, or sent by this router itself
	Rejected          // malformed, beyond a limit, or about an unknown worker
	verdicts
)

var verdictNames = enum.New[Verdict]("router", "verdict", "applied", "made", "duplicate", "early", "stale", "rejected")

func (v Verdict) String() string { return verdictNames.Name(v) }

// replicas holds the other routers and their reservations.
type replicas struct {
	cfg         *Config
	peers       []peer
	indexOfPeer table
	remote      table            // (reservation id, peer) -> slab
	tombstones  table            // (id, peer) -> peer.tombstones
	verdicts    [verdicts]uint64 // of events
}

func newReplicas(cfg *Config) replicas {
	seed := mix(cfg.Seed, 1)
	return replicas{cfg: cfg, indexOfPeer: newTable(seed, 16), remote: newTable(seed, 16), tombstones: newTable(seed, 16)}
}

// verdict counts a verdict and returns it.
func (rs *replicas) verdict(v Verdict) Verdict {
	rs.verdicts[v]++
	return v
}

// peer is a replica, as its events show it.
type peer struct {
	id    ReplicaID // 0: free
	epoch uint64

	// The numbers of received events. All before next have arrived, except for missing of
	// them; next itself has not. Bit i of window is set if next+1+i has. Example: events 1, 2,
	// 4 and 7 give next 3, window 0b1001, missing 0.
	next    uint64
	window  uint64
	missing uint64

	tombstones []tombstone // a ring of at most MaxBuried
	oldest     int         // of the ring
	// floor is the highest id that has fallen out of the ring. An unknown reservation up to
	// it counts as ended: MaxBuried newer records have displaced it.
	floor uint64
}

// tombstone is a record of a reservation that is not in the slab: it has ended, or news of
// it arrived before its Reserved event.
type tombstone struct {
	id               uint64
	released         bool
	claimSeen        bool // its Reserved event has arrived, or can add nothing about its session
	computed, output int
}

// see notes the number of an event. The window covers 64 numbers after next. An event
// beyond it moves the window, and the numbers that fall out without having arrived are
// missing.
func (p *peer) see(seq uint64) {
	if seq < p.next {
		return
	}
	for seq > p.next+64 {
		if p.window == 0 {
			// The window is empty: everything up to seq-64 is missing, in one step.
			p.missing += seq - 64 - p.next
			p.next = seq - 64
			break
		}
		p.missing++
		p.next++
		p.slide()
	}
	if seq == p.next {
		p.next++
		p.slide()
		return
	}
	p.window |= 1 << (seq - p.next - 1)
}

// slide moves the window by one number after next has advanced, and then over all
// numbers that have arrived.
func (p *peer) slide() {
	came := p.window & 1
	p.window >>= 1
	for came == 1 {
		p.next++
		came = p.window & 1
		p.window >>= 1
	}
}

// catchUp notes that a snapshot includes all events up to seq.
func (p *peer) catchUp(seq uint64) {
	if seq+1 < p.next {
		return
	}
	p.missing = 0
	for p.next <= seq {
		if p.window == 0 {
			p.next = seq + 1
			break
		}
		p.next++
		p.slide()
	}
}

// absent returns the number of events that have not arrived although later ones have:
// the missing ones, next, and the gaps in the window.
func (p *peer) absent() uint64 {
	if p.window == 0 {
		return p.missing
	}
	return p.missing + 1 + uint64(bits.Len64(p.window)-bits.OnesCount64(p.window))
}

// place returns the index of a replica and adds an unknown one. It returns noEntry if
// there are MaxPeers already.
func (rs *replicas) place(id ReplicaID, epoch uint64) int32 {
	at := rs.indexOfPeer.get(key{a: uint64(id)})
	if at != noEntry {
		return at
	}
	if rs.indexOfPeer.n >= rs.cfg.MaxPeers {
		return noEntry
	}
	at = int32(slices.IndexFunc(rs.peers, func(p peer) bool { return p.id == 0 }))
	if at == noEntry {
		at = int32(len(rs.peers))
		rs.peers = append(rs.peers, peer{})
	}
	rs.peers[at] = peer{id: id, epoch: epoch, next: 1}
	rs.indexOfPeer.put(key{a: uint64(id)}, at)
	return at
}

// knowsClaim reports whether a replica is present and knows a claim that it made. A stamp is
// never below the epoch in which it was made, so a lower stamp is from before a
// restart, which the replica has forgotten.
func (rs *replicas) knowsClaim(by ReplicaID, stamp uint64) bool {
	at := rs.indexOfPeer.get(key{a: uint64(by)})
	return at != noEntry && stamp >= min(rs.peers[at].epoch, MaxStamp)
}

// recordEarly records news of a reservation that is not in the slab: its event arrived
// before its Reserved event, or after its end.
func (rs *replicas) recordEarly(at int32, news tombstone) Verdict {
	p := &rs.peers[at]
	place := rs.tombstones.get(key{news.id, uint32(at)})
	if place == noEntry {
		if news.id <= p.floor {
			return Stale
		}
		rs.addTombstone(at, news)
		return Early
	}
	b := &p.tombstones[place]
	switch {
	case b.released && news.released:
		return Duplicate
	case b.released:
		return Stale
	}
	b.released, b.claimSeen, b.computed, b.output = news.released, news.claimSeen, max(b.computed, news.computed), max(b.output, news.output)
	return Early
}

// tombstoneOf returns the record of a reservation whose Reserved event arrives now. v is
// Stale if the reservation has ended. late reports whether its claim on a session still
// counts although it has ended.
func (rs *replicas) tombstoneOf(at int32, id uint64) (b tombstone, v Verdict, late bool) {
	p := &rs.peers[at]
	place := rs.tombstones.get(key{id, uint32(at)})
	if place == noEntry {
		if id <= p.floor {
			v = Stale
		}
		return b, v, false
	}
	b = p.tombstones[place]
	if b.released {
		p.tombstones[place].claimSeen = true
		return b, Stale, !b.claimSeen
	}
	return b, Applied, false
}

// removeTombstone deletes the record of a reservation.
func (rs *replicas) removeTombstone(at int32, id uint64) {
	if place := rs.tombstones.delete(key{id, uint32(at)}); place != noEntry {
		rs.peers[at].tombstones[place] = tombstone{}
	}
}

// recordEnd records the end of a reservation.
func (rs *replicas) recordEnd(e *reservation) {
	rs.remote.delete(key{e.id, uint32(e.peer)})
	rs.addTombstone(e.peer, tombstone{id: e.id, released: true, claimSeen: true})
}

// addTombstone adds a record to the ring. The record that it displaces is forgotten, and all
// reservations with ids up to its own count as ended (floor).
func (rs *replicas) addTombstone(at int32, b tombstone) {
	p := &rs.peers[at]
	place := len(p.tombstones)
	if place < rs.cfg.MaxBuried {
		p.tombstones = append(p.tombstones, b)
	} else {
		place = p.oldest
		if old := p.tombstones[place]; old.id != 0 {
			rs.tombstones.delete(key{old.id, uint32(at)})
			p.floor = max(p.floor, old.id)
		}
		p.tombstones[place] = b
		p.oldest = (p.oldest + 1) % len(p.tombstones)
	}
	rs.tombstones.put(key{b.id, uint32(at)}, int32(place))
}

// dropTombstones deletes all records of a replica.
func (rs *replicas) dropTombstones(at int32) {
	for _, b := range rs.peers[at].tombstones {
		if b.id != 0 {
			rs.tombstones.delete(key{b.id, uint32(at)})
		}
	}
}
