package router

import (
	"slices"
	"time"

	"github.com/coppice-llm/coppice/kv"
)

// Drain appends the events since the last Drain to dst. The caller sends each of them to every
// replica. Their Hashes are valid until the next Drain.
func (r *Router) Drain(dst []Event) []Event { return r.journal.drain(dst) }

// Snapshot adds to s the reservations that this router made, for a replica that starts late or
// missed events. The caller may keep and change s.
//
// One call reads at most n entries of the table (n > 0), starting at entry from (0 at first), and
// ends early after n*blocksPerEntry block hashes, so it takes bounded time. next is the entry to start
// with in the next call, or 0 at the end. A reservation that ends between two calls may be missing; an
// event reports its end.
func (r *Router) Snapshot(from, n int, s *Snapshot) (next int) {
	if from == 0 {
		*s = Snapshot{Replica: r.cfg.Replica, Epoch: r.cfg.Epoch, Seq: r.journal.seq, LastID: r.lastID}
	}
	to, blocks := from, 0
	for ; to < min(from+n, len(r.slab)) && blocks < n*blocksPerEntry; to++ {
		e := &r.slab[to]
		if e.id == 0 || e.id > s.LastID || e.peer != ownPeer {
			continue
		}
		ev := e.event(r.workers[e.slot].id)
		ev.Replica, ev.Epoch, ev.Hashes = r.cfg.Replica, r.cfg.Epoch, r.tree.prefix(e.end)
		s.Events = append(s.Events, ev)
		blocks += len(ev.Hashes)
	}
	if to >= len(r.slab) {
		return 0
	}
	return to
}

// blocksPerEntry bounds the hashes that a call of Snapshot reads, on average for each of its n entries.
const blocksPerEntry = 512

// Apply applies an event of a replica and returns what became of it. Events may arrive twice and
// in any order; the final state is the same. If the event has a higher epoch than the replica
// had so far, the replica has restarted, and Apply first ends all its reservations of the lower
// epoch.
func (r *Router) Apply(now time.Duration, ev *Event) Verdict {
	r.advance(now)
	at, v := r.peerOf(ev.Replica, ev.Epoch)
	switch {
	case v != Applied:
	case ev.Seq == 0 || ev.ID == 0:
		v = Rejected
	default:
		v = r.apply(at, ev)
	}
	r.verify()
	return r.verdict(v)
}

// peerOf returns the index of replica id in peers, and Applied. An unknown replica is added. If
// epoch is higher than the known one, the replica's reservations end and its record begins
// again, empty. Otherwise the index is noEntry and the verdict gives the reason: Stale for a
// lower epoch or this router's own id, Rejected for id 0 or more than MaxPeers replicas.
func (r *Router) peerOf(id ReplicaID, epoch uint64) (int32, Verdict) {
	switch id {
	case 0:
		return noEntry, Rejected
	case r.cfg.Replica:
		return noEntry, Stale
	}
	at := r.place(id, epoch)
	if at == noEntry {
		return noEntry, Rejected
	}
	switch p := &r.peers[at]; {
	case epoch < p.epoch:
		return noEntry, Stale
	case epoch > p.epoch:
		r.empty(at)
		r.peers[at] = peer{id: id, epoch: epoch, tombstones: r.peers[at].tombstones[:0]}
	}
	return at, Applied
}

// empty ends all reservations of the replica at index at, oldest first, and removes its
// tombstones from the table.
func (r *Router) empty(at int32) {
	r.endMatching(at, func(*reservation) bool { return true })
	r.dropTombstones(at)
}

// endMatching ends the reservations of one replica for which match returns true, oldest first.
// peer is the replica's index in peers. It walks all reservations: a
// replica leaves or restarts rarely, so there is no list per replica to maintain.
func (r *Router) endMatching(peer int32, match func(*reservation) bool) {
	for at := r.ages.head; at != none; {
		e := &r.slab[at]
		next := e.links[byAge].next
		if e.peer == peer && match(e) {
			r.end(at)
		}
		at = next
	}
}

// apply applies one event of the replica at index at, and returns the verdict without counting
// it.
func (r *Router) apply(at int32, ev *Event) Verdict {
	if ev.ComputedTokens < 0 || ev.ComputedTokens > MaxPromptTokens || ev.OutputTokens < 0 || ev.OutputTokens > MaxPromptTokens ||
		ev.Session != 0 && (ev.Stamp < 1 || ev.Stamp > MaxStamp) {
		return Rejected
	}
	known := r.remote.get(key{ev.ID, uint32(at)})
	switch ev.Kind {
	case Reserved:
		if known == noEntry {
			return r.applyReserved(at, ev)
		}
		return r.catchUp(known, ev)
	case Progressed:
		if known == noEntry {
			return r.recordEarly(at, tombstone{id: ev.ID, computed: ev.ComputedTokens, output: ev.OutputTokens})
		}
		return r.catchUp(known, ev)
	case Released:
		v := Applied
		if known == noEntry {
			v = r.recordEarly(at, tombstone{id: ev.ID, released: true, claimSeen: ev.Session != 0})
		} else {
			r.end(known)
		}
		if v == Applied || v == Early {
			r.applyClaim(ev)
		}
		return v
	}
	return Rejected
}

// applyClaim applies the claim on a session that an event carries, if it carries one.
func (r *Router) applyClaim(ev *Event) {
	if ev.Session != 0 {
		r.sessions.applyClaim(r.now, &Claim{Session: ev.Session, Stamp: ev.Stamp, Replica: ev.Replica, Worker: ev.Worker, Nowhere: ev.Nowhere})
	}
}

// catchUp raises the totals of reservation known (its index in the slab) to those of an event.
// It is a Duplicate if the event raises none and is not Progressed. Otherwise it counts as
// progress: the worker is no longer stalled. worker.heard stays as it is, because the event does
// not tell when the worker's step ended.
func (r *Router) catchUp(known int32, ev *Event) Verdict {
	e := &r.slab[known]
	if ev.Kind != Progressed && ev.OutputTokens <= e.outputTokens && ev.ComputedTokens <= e.computed {
		return Duplicate
	}
	r.unstall(&r.workers[e.slot])
	r.progress(known, ev.ComputedTokens, ev.OutputTokens)
	return Applied
}

// applyReserved makes the reservation that a replica's Reserved event describes. at is the
// replica's index in peers. If totals of the reservation arrived before this event (before),
// they count at once. The predicted time is computed with this router's profile of the worker;
// replicas are expected to use the same profile. It returns Made, Stale for a reservation that
// has ended, or Rejected.
func (r *Router) applyReserved(at int32, ev *Event) Verdict {
	whole := kv.FloorPages(ev.PromptTokens, r.cfg.BlockTokens)
	if ev.PromptTokens < 1 || ev.PromptTokens > MaxPromptTokens || ev.UncachedTokens < 0 || ev.UncachedTokens > ev.PromptTokens ||
		len(ev.Hashes) > whole || ev.UnsharedBlocks < 0 || ev.UnsharedBlocks > whole {
		return Rejected
	}
	before, v, late := r.tombstoneOf(at, ev.ID)
	if late {
		r.applyClaim(ev)
	}
	if v == Stale {
		return Stale
	}
	slot := r.slotOf(ev.Worker)
	if slot == noEntry || r.active >= r.cfg.MaxActive {
		return Rejected
	}
	r.removeTombstone(at, ev.ID)
	cached := ev.PromptTokens - ev.UncachedTokens
	a := reservationSpec{
		hashes: ev.Hashes, promptTokens: ev.PromptTokens, uncached: ev.UncachedTokens, privatePart: ev.UnsharedBlocks, untold: ev.Untold,
		known:     kv.FloorPages(cached, r.cfg.BlockTokens),
		predicted: seconds(r.workers[slot].spec.Profile.prefill(float64(ev.UncachedTokens), float64(cached))),
	}
	made := r.reserve(slot, at, ev.ID, &a)
	r.remote.put(key{ev.ID, uint32(at)}, made)
	r.progress(made, max(ev.ComputedTokens, before.computed), max(ev.OutputTokens, before.output))
	r.applyClaim(ev)
	return Made
}

// ApplySnapshot makes the known reservations of a replica equal to those in a snapshot of it:
// reservations that are not in the snapshot end here, and missing ones are made. A known
// reservation with an id above s.LastID was made after the snapshot, so it stays.
//
// The second result is Applied, or the reason for which the whole snapshot is refused, as of
// Apply: Stale or Rejected. If it is Applied, the verdict of each event of the snapshot is
// counted and appended to dst.
func (r *Router) ApplySnapshot(now time.Duration, s *Snapshot, dst []Verdict) ([]Verdict, Verdict) {
	r.advance(now)
	at, v := r.peerOf(s.Replica, s.Epoch)
	if v != Applied {
		return dst, r.verdict(v)
	}
	ids := make([]uint64, 0, len(s.Events))
	for i := range s.Events {
		ids = append(ids, s.Events[i].ID)
	}
	slices.Sort(ids)
	r.endMatching(at, func(e *reservation) bool {
		_, has := slices.BinarySearch(ids, e.id)
		return e.id <= s.LastID && !has
	})
	floor := r.peers[at].floor
	r.peers[at].floor = 0 // a reservation in the snapshot has not ended, however old it is
	for i := range s.Events {
		v := Rejected
		if ev := &s.Events[i]; ev.Kind == Reserved && ev.ID != 0 && ev.ID <= s.LastID && ev.Session == 0 {
			v = r.apply(at, ev)
		}
		dst = append(dst, r.verdict(v))
	}
	r.peers[at].floor = max(r.peers[at].floor, floor)
	r.verify()
	return dst, Applied
}

// Forget ends all reservations of replica id and removes the replica, for example when it has
// left. An unknown id is ignored.
func (r *Router) Forget(now time.Duration, id ReplicaID) {
	r.advance(now)
	at := r.indexOfPeer.delete(key{a: uint64(id)})
	if at == noEntry || id == 0 {
		return
	}
	r.empty(at)
	r.peers[at] = peer{}
	r.verify()
}

// Peer describes a replica.
type Peer struct {
	Replica      ReplicaID
	Epoch        uint64
	Reservations int
}

// Peers appends the description of each replica to dst.
func (r *Router) Peers(dst []Peer) []Peer {
	for at := range r.peers {
		p := &r.peers[at]
		if p.id == 0 {
			continue
		}
		x := Peer{Replica: p.id, Epoch: p.epoch}
		for e := r.ages.head; e != none; e = r.slab[e].links[byAge].next {
			if int(r.slab[e].peer) == at {
				x.Reservations++
			}
		}
		dst = append(dst, x)
	}
	return dst
}

// Claims appends to dst the claims that a router missed and that no other replica may be able to
// tell it: this router's own, those of replicas that have left, and those that replicas made
// before a restart. The order means nothing.
//
// One call reads at most n entries of the session table, starting at entry from (0 at first), so
// it takes bounded time. next is the entry to start with in the next call, or 0 at the end. A
// claim made between two calls may be missing; an event reports it.
func (r *Router) Claims(now time.Duration, from, n int, dst []Claim) (_ []Claim, next int) {
	r.advance(now)
	s := &r.sessions
	to := min(from+n, len(s.entries))
	for i := from; i < to; i++ {
		e := &s.entries[i]
		age := r.now - e.touched
		if e.id == 0 || age >= r.cfg.SessionTTL || e.by != r.cfg.Replica && r.knowsClaim(e.by, e.stamp) {
			continue
		}
		dst = append(dst, Claim{Session: e.id, Stamp: e.stamp, Replica: e.by, Worker: e.worker, Nowhere: e.nowhere, Age: age})
	}
	if to == len(s.entries) {
		to = 0
	}
	return dst, to
}

// ApplyClaims applies claims that a replica sent, its own and those of others. It returns the
// number of malformed claims, which it ignores and counts as Rejected.
func (r *Router) ApplyClaims(now time.Duration, claims []Claim) (refused int) {
	r.advance(now)
	for i := range claims {
		if c := &claims[i]; c.sound() {
			r.sessions.applyClaim(r.now, c)
		} else {
			refused++
			r.verdict(Rejected)
		}
	}
	r.verify()
	return refused
}
