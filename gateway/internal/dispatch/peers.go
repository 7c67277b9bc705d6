package dispatch

import (
	"slices"
	"time"

	"github.com/coppice-llm/coppice/router"
)

// Events of the other routers are applied in groups. The mutex is released after each group, so that
// requests do not wait for many events.

// An event takes 1 to 2 µs. Its guess takes as much again for a known prompt, and 0.3 µs per
// block of an unknown prompt. A group has at most eventsAtOnce events, and ends with the event
// that reaches blocksAtOnce blocks. So a group takes about 0.7 ms.
const eventsAtOnce, blocksAtOnce = 32, 2048

// reservationsAtOnce is the number of entries of the router's table that a snapshot reads before
// the mutex is released. A reservation of 512 blocks takes 2 µs.
const reservationsAtOnce = 256

// claimsAtOnce is the number of session claims read or applied before the mutex is released.
const claimsAtOnce = 1024

// PeerStatus describes another router.
type PeerStatus struct {
	ID           string  `json:"id"`
	Seq          uint64  `json:"seq"`     // sequence number of its last event
	Missing      uint64  `json:"missing"` // events from the first to the last one that has not arrived
	Reservations int     `json:"reservations"`
	Silence      float64 `json:"silence_seconds"`
}

// Peers is the connection to the other routers of a fleet. Package replica implements it.
type Peers interface {
	// Status describes each peer, by ID.
	Status() []PeerStatus
	// Close tells the peers that this router leaves.
	Close() error
}

// News returns two channels of capacity 1: one signals events to drain, one that a worker has
// joined. They are nil unless Router.Replica is set.
func (d *Dispatcher) News() (events, joined <-chan struct{}) { return d.peers.news, d.peers.joined }

// belief says which new reservations of a peer count as guesses about caches.
type belief uint8

const (
	nothing          belief = iota
	guessUnconfirmed        // only reservations whose blocks no event will report
	all
)

// ApplyEvents applies events of a peer. It returns the number of events that the router refused.
func (d *Dispatcher) ApplyEvents(events []router.Event) (refused int) {
	return d.apply(events, all)
}

// apply applies events of a peer, group by group, and returns the number of refused events. b
// says which of them become guesses.
func (d *Dispatcher) apply(events []router.Event, b belief) (refused int) {
	for len(events) > 0 {
		n := groupSize(events)
		d.change(func(r *router.Router, now time.Duration) {
			for i := range events[:n] {
				refused += d.guessFrom(r.Apply(now, &events[i]), &events[i], now, b)
			}
		})
		events = events[n:]
	}
	return refused
}

// groupSize returns the number of events, from the first on, that form a group.
func groupSize(events []router.Event) (n int) {
	for blocks := 0; n < min(len(events), eventsAtOnce) && blocks < blocksAtOnce; n++ {
		blocks += len(events[n].Hashes)
	}
	return n
}

// guessFrom guesses, after the router has applied event ev of a peer with verdict v, that the
// prompt of the new reservation will be cached at its worker. b says which reservations become
// guesses. If the reservation is not new or its worker is lost, it does nothing. It returns 1 if
// the router refused the event, else 0. The caller holds the mutex.
func (d *Dispatcher) guessFrom(v router.Verdict, ev *router.Event, now time.Duration, b belief) (refused int) {
	if v == router.Rejected {
		return 1
	}
	k := d.ranks[ev.Worker]
	if v != router.Made || k == nil || b == nothing || b == guessUnconfirmed && !ev.Untold && !k.blind {
		return 0
	}
	// A rank that has just joined counts as lost here, although the peer knows it already.
	if l, ok := d.router.Load(now, ev.Worker); ok && (l.Health != router.Lost || k.fresh) {
		d.guess(ev.Worker, ev.Hashes, ev.Untold, now)
	}
	return 0
}

// Snapshot appends the router's latest events to dst, and returns a snapshot of its reservations
// that includes these events. It calls shorten for each part of the snapshot, which may remove hashes
// from the part's events, so that all hashes are never in memory together.
func (d *Dispatcher) Snapshot(dst []router.Event, shorten func(part []router.Event)) (events []router.Event, s router.Snapshot) {
	for from, more := 0, true; more; more = from > 0 {
		was := len(s.Events)
		d.With(func(r *router.Router, _ time.Duration) {
			if from == 0 {
				dst = r.Drain(dst)
			}
			from = r.Snapshot(from, reservationsAtOnce, &s)
		})
		shorten(s.Events[was:])
	}
	return dst, s
}

// Claims appends this router's claims on sessions to dst.
func (d *Dispatcher) Claims(dst []router.Claim) []router.Claim {
	for from, more := 0, true; more; more = from > 0 {
		d.With(func(r *router.Router, now time.Duration) { dst, from = r.Claims(now, from, claimsAtOnce, dst) })
	}
	return dst
}

// ApplyClaims applies a peer's claims on sessions.
func (d *Dispatcher) ApplyClaims(claims []router.Claim) {
	for part := range slices.Chunk(claims, claimsAtOnce) {
		d.With(func(r *router.Router, now time.Duration) { r.ApplyClaims(now, part) })
	}
}

// ApplySnapshot applies all reservations of a peer, and returns the number that the router
// refused. With reset it first drops what it knows of the peer. Then no reservation becomes a
// guess, because a worker may have left and joined again since the reservation was made. A long
// snapshot is first applied as events in groups, so that the last step, without releasing the
// mutex, finds little new.
func (d *Dispatcher) ApplySnapshot(s *router.Snapshot, reset bool) (refused int) {
	b := guessUnconfirmed
	if reset {
		b = nothing
	}
	if groupSize(s.Events) < len(s.Events) && s.Seq > 0 {
		if reset {
			d.Forget(s.Replica)
			reset = false
		}
		for i := range s.Events {
			s.Events[i].Seq = s.Seq
		}
		d.apply(s.Events, b)
	}
	d.change(func(r *router.Router, now time.Duration) {
		if reset {
			r.Forget(now, s.Replica)
		}
		d.verdicts, _ = r.ApplySnapshot(now, s, d.verdicts[:0])
		for i, v := range d.verdicts {
			refused += d.guessFrom(v, &s.Events[i], now, b)
		}
	})
	return refused
}

// Forget ends all reservations of a peer and removes the peer.
func (d *Dispatcher) Forget(id router.ReplicaID) {
	d.change(func(r *router.Router, now time.Duration) { r.Forget(now, id) })
}

// HasLeft reports whether a worker has left since the last call.
func (d *Dispatcher) HasLeft() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	left := d.left
	d.left = false
	return left
}
