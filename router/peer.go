package router

import (
	"math/bits"
	"slices"

	"github.com/coppice-llm/coppice/internal/enum"
)

// Verdict is what became of an event.
type Verdict uint8

// The verdicts. Nothing is wrong with any but Rejected.
const (
	Applied   Verdict = iota
	Made              // applied, and a reservation of it that was not known
	Duplicate         // nothing new
	Early             // about a reservation that is not known yet; remembered for a while
	Stale             // of an earlier epoch, or about what has ended, or one's own
	Rejected          // malformed, beyond a limit, or about an unknown worker
	verdicts
)

var verdictNames = enum.New[Verdict]("router", "verdict", "applied", "made", "duplicate", "early", "stale", "rejected")

func (v Verdict) String() string { return verdictNames.Name(v) }

// replicas holds the other routers, and which reservations they made.
type replicas struct {
	cfg         *Config
	peers       []peer
	indexOfPeer table
	remote      table            // (id, peer) -> slab
	graves      table            // (id, peer) -> peer.buried
	verdicts    [verdicts]uint64 // of events
}

func newReplicas(cfg *Config) replicas {
	seed := mix(cfg.Seed, 1)
	return replicas{cfg: cfg, indexOfPeer: newTable(seed, 16), remote: newTable(seed, 16), graves: newTable(seed, 16)}
}

// verdict counts a verdict.
func (rs *replicas) verdict(v Verdict) Verdict {
	rs.verdicts[v]++
	return v
}

// peer is a replica as its events show it.
type peer struct {
	id    ReplicaID // 0: free
	epoch uint64

	// What came of its events: all before next but missing, and after next those whose
	// bits are set, the lowest for next+1.
	next    uint64
	window  uint64
	missing uint64

	buried []buried // a ring
	oldest int
	// floor: nothing is known of reservations up to it that are not here; they have
	// ended, or as good as.
	floor uint64
}

// buried is what is remembered of a reservation that is not here: it has ended, or
// news of it came before itself.
type buried struct {
	id               uint64
	released         bool
	said             bool // its Reserved was here, or has nothing to say any more of its session
	computed, output int
}

// see notes the number of an event, for missing.
func (p *peer) see(seq uint64) {
	if seq < p.next {
		return
	}
	for seq > p.next+64 { // the window moves, and what is not in it by then is missing
		if p.window == 0 {
			// Nothing is in it: all up to where seq is its last are missing at once.
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

// slide moves the window by one, next having moved, and on over all that came.
func (p *peer) slide() {
	came := p.window & 1
	p.window >>= 1
	for came == 1 {
		p.next++
		came = p.window & 1
		p.window >>= 1
	}
}

// catchUp notes that all events up to a number are known by a snapshot.
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

// absent are the events that have not come though later ones have.
func (p *peer) absent() uint64 {
	if p.window == 0 {
		return p.missing
	}
	return p.missing + 1 + uint64(bits.Len64(p.window)-bits.OnesCount64(p.window))
}

// place returns the index of a replica, which is made if it is new, or noEntry where
// there are too many.
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

// tells reports whether a replica is there and knows of a claim that it made: stamps are
// never below the epoch in which they are given.
func (rs *replicas) tells(by ReplicaID, stamp uint64) bool {
	at := rs.indexOfPeer.get(key{a: uint64(by)})
	return at != noEntry && stamp >= min(rs.peers[at].epoch, MaxStamp)
}

// foretell remembers news of a reservation that is not here.
func (rs *replicas) foretell(at int32, news buried) Verdict {
	p := &rs.peers[at]
	grave := rs.graves.get(key{news.id, uint32(at)})
	if grave == noEntry {
		if news.id <= p.floor {
			return Stale
		}
		rs.dig(at, news)
		return Early
	}
	b := &p.buried[grave]
	switch {
	case b.released && news.released:
		return Duplicate
	case b.released:
		return Stale
	}
	b.released, b.said, b.computed, b.output = news.released, news.said, max(b.computed, news.computed), max(b.output, news.output)
	return Early
}

// exhume takes out what is remembered of a reservation that comes now. Stale: it has ended.
// late: its claim is news all the same.
func (rs *replicas) exhume(at int32, id uint64) (b buried, v Verdict, late bool) {
	p := &rs.peers[at]
	grave := rs.graves.get(key{id, uint32(at)})
	if grave == noEntry {
		if id <= p.floor {
			v = Stale
		}
		return b, v, false
	}
	b = p.buried[grave]
	if b.released {
		p.buried[grave].said = true
		return b, Stale, !b.said
	}
	return b, Applied, false
}

// unbury forgets what is remembered of a reservation.
func (rs *replicas) unbury(at int32, id uint64) {
	if grave := rs.graves.delete(key{id, uint32(at)}); grave != noEntry {
		rs.peers[at].buried[grave] = buried{}
	}
}

// bury remembers that a reservation has ended.
func (rs *replicas) bury(e *reservation) {
	rs.remote.delete(key{e.id, uint32(e.peer)})
	rs.dig(e.peer, buried{id: e.id, released: true, said: true})
}

// dig puts b into the ring; what it drives out is forgotten, and with it all that
// came before.
func (rs *replicas) dig(at int32, b buried) {
	p := &rs.peers[at]
	grave := len(p.buried)
	if grave < rs.cfg.MaxBuried {
		p.buried = append(p.buried, b)
	} else {
		grave = p.oldest
		if old := p.buried[grave]; old.id != 0 {
			rs.graves.delete(key{old.id, uint32(at)})
			p.floor = max(p.floor, old.id)
		}
		p.buried[grave] = b
		p.oldest = (p.oldest + 1) % len(p.buried)
	}
	rs.graves.put(key{b.id, uint32(at)}, int32(grave))
}

// forgetGraves forgets what is remembered of a replica's reservations.
func (rs *replicas) forgetGraves(at int32) {
	for _, b := range rs.peers[at].buried {
		if b.id != 0 {
			rs.graves.delete(key{b.id, uint32(at)})
		}
	}
}
