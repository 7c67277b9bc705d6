package router

import (
	"slices"

	"github.com/coppice-llm/coppice/internal/enum"
)

// Verdict is the effect of an event on the router. Only Rejected means a fault.
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

// replicas holds the other routers and finds their reservations.
type replicas struct {
	cfg         *Config
	peers       []peer
	indexOfPeer table
	remote      table            // (reservation id, index of peers) -> index of the slab
	tombstones  table            // (reservation id, index of peers) -> index of peer.tombstones
	verdicts    [verdicts]uint64 // of events
}

func newReplicas(cfg *Config) replicas {
	seed := mix(cfg.Seed, 1)
	return replicas{cfg: cfg, indexOfPeer: newTable(seed), remote: newTable(seed), tombstones: newTable(seed)}
}

// verdict counts v and returns it.
func (rs *replicas) verdict(v Verdict) Verdict {
	rs.verdicts[v]++
	return v
}

// peer is a replica, as its events show it.
type peer struct {
	id    ReplicaID // 0: free
	epoch uint64

	tombstones []tombstone // a ring of at most MaxBuried
	oldest     int         // index in tombstones of the oldest one, once the ring is full
	// floor is the highest id of a tombstone that was displaced from the ring. An unknown
	// reservation with an id up to floor counts as ended.
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

// place returns the index of replica id in peers. An unknown replica is added with this epoch.
// It returns noEntry if there are MaxPeers replicas already.
func (rs *replicas) place(id ReplicaID, epoch uint64) int32 {
	at := rs.indexOfPeer.get(key{a: uint64(id)})
	if at != noEntry {
		return at
	}
	if rs.indexOfPeer.Len() >= rs.cfg.MaxPeers {
		return noEntry
	}
	at = int32(slices.IndexFunc(rs.peers, func(p peer) bool { return p.id == 0 }))
	if at == noEntry {
		at = int32(len(rs.peers))
		rs.peers = append(rs.peers, peer{})
	}
	rs.peers[at] = peer{id: id, epoch: epoch}
	rs.indexOfPeer.put(key{a: uint64(id)}, at)
	return at
}

// knowsClaim reports whether replica by is present and still knows a claim with this stamp that
// it made. A replica's stamps are never below its epoch. So a lower stamp is from before the
// replica's restart, and the replica has forgotten the claim.
func (rs *replicas) knowsClaim(by ReplicaID, stamp uint64) bool {
	at := rs.indexOfPeer.get(key{a: uint64(by)})
	return at != noEntry && stamp >= min(rs.peers[at].epoch, MaxStamp)
}

// recordEarly records news of a reservation that is not in the slab, because its Reserved event
// has not arrived yet or because it has ended. at is the replica's index in peers. The verdict
// is Early if the news is recorded, Duplicate for a second end, and Stale if the reservation has
// ended before.
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

// tombstoneOf returns the record of reservation id, of which the Reserved event arrives now. at
// is the replica's index in peers. b is zero without a record. v is Stale if the reservation has
// ended. late reports whether the claim of the event on a session still counts, although the
// reservation has ended: no event has told it yet.
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

// removeTombstone deletes the record of reservation id of the replica at index at, if there is
// one.
func (rs *replicas) removeTombstone(at int32, id uint64) {
	if place := rs.tombstones.delete(key{id, uint32(at)}); place != noEntry {
		rs.peers[at].tombstones[place] = tombstone{}
	}
}

// recordEnd replaces a replica's reservation e, which has ended, by a tombstone.
func (rs *replicas) recordEnd(e *reservation) {
	rs.remote.delete(key{e.id, uint32(e.peer)})
	rs.addTombstone(e.peer, tombstone{id: e.id, released: true, claimSeen: true})
}

// addTombstone adds record b to the ring of the replica at index at. A full ring loses its
// oldest record, and peer.floor rises to at least the id of that record.
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

// dropTombstones removes all records of the replica at index at from the table. The caller
// empties or replaces the ring.
func (rs *replicas) dropTombstones(at int32) {
	for _, b := range rs.peers[at].tombstones {
		if b.id != 0 {
			rs.tombstones.delete(key{b.id, uint32(at)})
		}
	}
}
