package dispatch

import (
	"slices"
	"time"

	"github.com/coppice-llm/coppice/router"
)

// What other routers of the fleet tell is applied in groups, and the mutex is held for one
// group at a time, so that requests do not wait for many.

// An event takes a microsecond or two, as much again to guess a known prompt, and 0.3 µs for
// each block of an unknown one. A group has at most eventsAtOnce events, and ends with the
// event that brings it to blocksAtOnce blocks.
const eventsAtOnce, blocksAtOnce = 32, 2048

// claimsAtOnce is how many claims on sessions are applied under one lock.
const claimsAtOnce = 1024

// PeerStatus is what this router knows of another one.
type PeerStatus struct {
	ID           string  `json:"id"`
	Seq          uint64  `json:"seq"`     // of its last event
	Missing      uint64  `json:"missing"` // events up to it that have not come
	Reservations int     `json:"reservations"`
	Silence      float64 `json:"silence_seconds"`
}

// Peers are the other routers of a fleet. Package replica implements it.
type Peers interface {
	// Status is what is known of each, by its ID.
	Status() []PeerStatus
	// Close says goodbye.
	Close() error
}

// News are two channels that hold one note each: there are events to drain, and a worker has
// joined. They are nil unless Router.Replica is given.
func (d *Dispatcher) News() (events, joined <-chan struct{}) { return d.peers.news, d.peers.joined }

// belief is which of a peer's new reservations are guesses of what workers hold.
type belief uint8

const (
	nothing belief = iota
	lasting        // those that no event will confirm
	all
)

// ApplyEvents takes events of a peer, and counts those that the router refused.
func (d *Dispatcher) ApplyEvents(events []router.Event) (refused int) {
	return d.apply(events, all)
}

func (d *Dispatcher) apply(events []router.Event, b belief) (refused int) {
	for len(events) > 0 {
		n := groupSize(events)
		d.change(func(r *router.Router, now time.Duration) {
			for i := range events[:n] {
				refused += d.learn(r.Apply(now, &events[i]), &events[i], now, b)
			}
		})
		events = events[n:]
	}
	return refused
}

// groupSize is how many of the leading events are one group.
func groupSize(events []router.Event) (n int) {
	for blocks := 0; n < min(len(events), eventsAtOnce) && blocks < blocksAtOnce; n++ {
		blocks += len(events[n].Hashes)
	}
	return n
}

// learn guesses that the prompt of a peer's new reservation will be cached where it was sent.
// It returns 1 for an event that the router refused. A reservation that is not new, or whose
// worker is lost, says nothing.
func (d *Dispatcher) learn(v router.Verdict, ev *router.Event, now time.Duration, b belief) (refused int) {
	if v == router.Rejected {
		return 1
	}
	k := d.ranks[ev.Worker]
	if v != router.Made || k == nil || b == nothing || b == lasting && !ev.Untold && !k.blind {
		return 0
	}
	// A worker that joined a moment ago counts as lost, but the peer knows it already.
	if l, ok := d.router.Load(now, ev.Worker); ok && (l.Health != router.Lost || k.fresh) {
		d.guess(ev.Worker, ev.Hashes, ev.Untold, now)
	}
	return 0
}

// Claims appends what this router tells of sessions to dst.
func (d *Dispatcher) Claims(dst []router.Claim) []router.Claim {
	for from, more := 0, true; more; more = from > 0 {
		d.With(func(r *router.Router, now time.Duration) { dst, from = r.Claims(now, from, claimsAtOnce, dst) })
	}
	return dst
}

// ApplyClaims takes what a peer says of sessions.
func (d *Dispatcher) ApplyClaims(claims []router.Claim) {
	for part := range slices.Chunk(claims, claimsAtOnce) {
		d.With(func(r *router.Router, now time.Duration) { r.ApplyClaims(now, part) })
	}
}

// ApplySnapshot takes all that a peer has reserved, and counts what the router refused. anew:
// what was known of the peer before is forgotten, and none of it becomes a guess, as it may be
// from before a worker left. A long snapshot is applied in groups first, so that the last step
// finds nothing new.
func (d *Dispatcher) ApplySnapshot(s *router.Snapshot, anew bool) (refused int) {
	b := lasting
	if anew {
		b = nothing
	}
	if groupSize(s.Events) < len(s.Events) && s.Seq > 0 {
		if anew {
			d.Forget(s.Replica)
			anew = false
		}
		for i := range s.Events {
			s.Events[i].Seq = s.Seq
		}
		d.apply(s.Events, b)
	}
	d.change(func(r *router.Router, now time.Duration) {
		if anew {
			r.Forget(now, s.Replica)
		}
		d.verdicts, _ = r.ApplySnapshot(now, s, d.verdicts[:0])
		for i, v := range d.verdicts {
			refused += d.learn(v, &s.Events[i], now, b)
		}
	})
	return refused
}

// Forget ends all that a peer reserved.
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
