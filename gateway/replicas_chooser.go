package gateway

import (
	"github.com/coppice-llm/coppice/router"
)

// What the replicas ask of the chooser. Its mutex is held for a group of events at a time,
// so that requests need not wait for many.

// eventsAtOnce is that many events. Each takes a microsecond or two.
const eventsAtOnce = 32

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

// apply takes events of a replica, and counts those that the router refused.
func (c *chooser) apply(events []router.Event) (refused int) {
	for len(events) > 0 {
		n := min(len(events), eventsAtOnce)
		refused += c.applyGroup(events[:n])
		events = events[n:]
	}
	return refused
}

func (c *chooser) applyGroup(events []router.Event) (refused int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	for i := range events {
		if c.router.Apply(now, &events[i]) == router.Rejected {
			refused++
		}
	}
	c.pump(now) // a worker may have room again
	return refused
}

// applySnapshot takes all that a replica has reserved, and counts what the router refused.
// anew: nothing that was known of it before counts. What is long is applied in groups
// first, and found to be there in the end.
func (c *chooser) applySnapshot(s *router.Snapshot, anew bool) (refused uint64) {
	if len(s.Events) > eventsAtOnce && s.Seq > 0 {
		if anew {
			c.forget(s.Replica)
			anew = false
		}
		for i := range s.Events {
			s.Events[i].Seq = s.Seq
		}
		c.apply(s.Events)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	if anew {
		c.router.Forget(now, s.Replica)
	}
	before := c.router.Metrics().Rejected
	c.router.ApplySnapshot(now, s)
	c.pump(now)
	return c.router.Metrics().Rejected - before
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
