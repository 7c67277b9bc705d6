package gateway

import (
	"slices"
	"time"

	"github.com/coppice-llm/coppice/router"
)

// What the replicas ask of the chooser. Its mutex is held for a group of events at a time,
// so that requests need not wait for many.

// eventsAtOnce is that many events: each takes a microsecond or two, and as much again for
// the guess of a prompt that is known, but 0.3 µs for each block that is not. So a group
// ends with the event that has it come to blocksAtOnce. claimsAtOnce is that many places of
// sessions.
const eventsAtOnce, blocksAtOnce, claimsAtOnce = 32, 2048, 1024

// group is how many of the leading events are one.
func group(events []router.Event) (n int) {
	for blocks := 0; n < min(len(events), eventsAtOnce) && blocks < blocksAtOnce; n++ {
		blocks += len(events[n].Hashes)
	}
	return n
}

// belief is what of a replica's new reservations is a guess of what workers have.
type belief uint8

const (
	nothing belief = iota
	lasting        // where no event will tell; elsewhere it has told, or will soon
	all
)

// replicate has the chooser tell of what it reserves, by a note in one channel, and of
// workers that join, in another.
func (c *chooser) replicate() {
	c.news, c.joined = make(chan struct{}, 1), make(chan struct{}, 1)
}

// tell notes that there are events. It costs nothing where a note is there already.
func (c *chooser) tell() {
	select {
	case c.news <- struct{}{}:
	default: // or nobody listens: the channel is nil
	}
}

// meet notes that a worker has joined: what replicas reserved there was refused.
func (c *chooser) meet() {
	select {
	case c.joined <- struct{}{}:
	default:
	}
}

// drainEvents appends the events since the last call to dst. Their hashes are valid until
// the next one.
func (c *chooser) drainEvents(dst []router.Event) []router.Event {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.router.Drain(dst)
}

// snapshot is the same, and all that is reserved after them.
func (c *chooser) snapshot(dst []router.Event) ([]router.Event, router.Snapshot) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.router.Drain(dst), c.router.Snapshot()
}

// claims appends what the router is to tell of sessions to dst.
func (c *chooser) claims(dst []router.Claim) []router.Claim {
	for from, more := 0, true; more; more = from > 0 {
		c.mu.Lock()
		dst, from = c.router.Claims(c.now(), from, claimsAtOnce, dst)
		c.mu.Unlock()
	}
	return dst
}

// apply takes events of a replica, and counts those that the router refused.
func (c *chooser) apply(events []router.Event, b belief) (refused int) {
	for len(events) > 0 {
		n := group(events)
		refused += c.applyGroup(events[:n], b)
		events = events[n:]
	}
	return refused
}

func (c *chooser) applyGroup(events []router.Event, b belief) (refused int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	for i := range events {
		refused += c.learn(c.router.Apply(now, &events[i]), &events[i], now, b)
	}
	c.pump(now) // a worker may have room again
	return refused
}

// learn is what is left to do for an event, and 1 if it was refused. The prompt of a
// reservation that was not known will be where it was sent, as one's own are: for an event
// that comes again it is known, or has ended. One that was underway while its worker was
// lost does not have its blocks come back.
func (c *chooser) learn(v router.Verdict, ev *router.Event, now time.Duration, b belief) (refused int) {
	switch {
	case v == router.Rejected:
		return 1
	case v == router.Made && (b == all || b == lasting && (ev.Untold || c.blind[ev.Worker])):
		// One that joined a moment ago is not lost: the replica knows it already.
		if l, ok := c.router.Load(now, ev.Worker); ok && (l.Health != router.Lost || c.fresh[ev.Worker]) {
			c.guess(ev.Worker, ev.Hashes, ev.Untold, now)
		}
	}
	return 0
}

// applyClaims takes what a replica says of sessions.
func (c *chooser) applyClaims(claims []router.Claim) {
	for part := range slices.Chunk(claims, claimsAtOnce) {
		c.mu.Lock()
		c.router.ApplyClaims(c.now(), part)
		c.mu.Unlock()
	}
}

// applySnapshot takes all that a replica has reserved, and counts what the router refused.
// anew: nothing that was known of it before counts, nor is it believed of workers, as it
// may be of before one left. What is long is applied in groups first, and found to be there
// in the end.
func (c *chooser) applySnapshot(s *router.Snapshot, anew bool) (refused int) {
	b := lasting
	if anew {
		b = nothing
	}
	if group(s.Events) < len(s.Events) && s.Seq > 0 {
		if anew {
			c.forget(s.Replica)
			anew = false
		}
		for i := range s.Events {
			s.Events[i].Seq = s.Seq
		}
		c.apply(s.Events, b)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	if anew {
		c.router.Forget(now, s.Replica)
	}
	c.verdicts, _ = c.router.ApplySnapshot(now, s, c.verdicts[:0])
	for i, v := range c.verdicts {
		refused += c.learn(v, &s.Events[i], now, b)
	}
	c.pump(now)
	return refused
}

// forget ends all that a replica reserved.
func (c *chooser) forget(id router.ReplicaID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	c.router.Forget(now, id)
	c.pump(now)
}

// peers are the replicas as the router knows them. It costs a step for each reservation
// and replica.
func (c *chooser) peers() []router.Peer {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.router.Peers(nil)
}

// hasLeft tells whether a worker has left since the last call.
func (c *chooser) hasLeft() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	left := c.left
	c.left = false
	return left
}
