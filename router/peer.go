package router

import (
	"math/bits"
	"slices"
	"time"
)

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

// absent are the events that have not come though later ones have.
func (p *peer) absent() uint64 {
	if p.window == 0 {
		return p.missing
	}
	return p.missing + 1 + uint64(bits.Len64(p.window)-bits.OnesCount64(p.window))
}

// peerOf is the replica's place, made or begun anew as its epoch asks for.
func (r *Router) peerOf(id ReplicaID, epoch uint64) (int32, Verdict) {
	if id == r.cfg.Replica && id != 0 {
		return noEntry, Stale
	}
	at := r.indexOfPeer.get(key{a: uint64(id)})
	if id == 0 {
		return noEntry, Rejected
	}
	if at == noEntry {
		if r.indexOfPeer.n >= r.cfg.MaxPeers {
			return noEntry, Rejected
		}
		at = int32(slices.IndexFunc(r.peers, func(p peer) bool { return p.id == 0 }))
		if at == noEntry {
			r.peers = append(r.peers, peer{})
			at = int32(len(r.peers) - 1)
		}
		r.peers[at] = peer{id: id, epoch: epoch, next: 1}
		r.indexOfPeer.put(key{a: uint64(id)}, at)
	}
	switch p := &r.peers[at]; {
	case epoch < p.epoch:
		return noEntry, Stale
	case epoch > p.epoch:
		r.empty(at)
		r.peers[at] = peer{id: id, epoch: epoch, next: 1, buried: r.peers[at].buried[:0]}
	}
	return at, Applied
}

// empty ends all that a replica reserved, in the order of age, and forgets its
// graves.
func (r *Router) empty(at int32) {
	for e := r.ages.head; e != none; {
		next := r.slab[e].links[byAge].next
		if r.slab[e].peer == at {
			r.end(e, ended)
		}
		e = next
	}
	for _, b := range r.peers[at].buried {
		if b.id != 0 {
			r.graves.delete(key{b.id, uint32(at)})
		}
	}
}

// Forget ends all that a replica reserved and forgets it, as when it left.
func (r *Router) Forget(now time.Duration, id ReplicaID) {
	r.advance(now)
	at := r.indexOfPeer.delete(key{a: uint64(id)})
	if at == noEntry || id == 0 {
		return
	}
	r.empty(at)
	r.peers[at] = peer{}
}

// Peer is what is known of a replica.
type Peer struct {
	Replica ReplicaID
	Epoch   uint64
	// Missing are events that have not come though later ones have: ask for a
	// Snapshot if it stays.
	Missing      uint64
	Reservations int
}

// Peers appends what is known of all replicas to dst.
func (r *Router) Peers(dst []Peer) []Peer {
	for at := range r.peers {
		p := &r.peers[at]
		if p.id == 0 {
			continue
		}
		x := Peer{Replica: p.id, Epoch: p.epoch, Missing: p.absent()}
		for e := r.ages.head; e != none; e = r.slab[e].links[byAge].next {
			if int(r.slab[e].peer) == at {
				x.Reservations++
			}
		}
		dst = append(dst, x)
	}
	return dst
}
