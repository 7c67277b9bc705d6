package sim

import (
	"fmt"
	"time"
)

// Clock is virtual time: a heap of events by (time, order of At). It belongs to
// one goroutine; several backends and drivers may share it. The zero Clock is not
// usable, see NewClock.
type Clock struct {
	now    time.Duration
	order  uint64
	events []event // by number; free ones are in spare
	spare  []int32
	heap   []int32 // numbers of pending events, the earliest first
}

// EventID names a pending event. The zero EventID names none.
type EventID uint64

// event is one entry. place is its index in heap, or -1.
type event struct {
	at    time.Duration
	order uint64
	run   func()
	turn  uint32 // how often the entry was used, so that old ids find nothing
	place int32
}

// NewClock starts at zero.
func NewClock() *Clock { return &Clock{} }

// Now is the time of the event that runs, or of the last one that ran.
func (c *Clock) Now() time.Duration { return c.now }

// Len is the number of pending events.
func (c *Clock) Len() int { return len(c.heap) }

// Next is the time of the earliest event; ok is false if there is none.
func (c *Clock) Next() (at time.Duration, ok bool) {
	if len(c.heap) == 0 {
		return 0, false
	}
	return c.events[c.heap[0]].at, true
}

// At runs f at time t. Events of one time run in the order of the calls; a time
// that is over counts as now. Cost O(log pending), no allocation in steady state.
func (c *Clock) At(t time.Duration, f func()) EventID {
	if f == nil {
		panic("sim: Clock.At of no function")
	}
	var n int32
	if last := len(c.spare) - 1; last >= 0 {
		n, c.spare = c.spare[last], c.spare[:last]
	} else {
		n = int32(len(c.events))
		c.events = append(c.events, event{})
	}
	c.order++
	e := &c.events[n]
	e.at, e.order, e.run, e.turn, e.place = max(t, c.now), c.order, f, e.turn+1, int32(len(c.heap))
	c.heap = append(c.heap, n)
	c.up(len(c.heap) - 1)
	return EventID(uint64(e.turn)<<32 | uint64(n))
}

// Cancel takes an event out before it runs; false if it ran, runs or was
// cancelled.
func (c *Clock) Cancel(id EventID) bool {
	n, turn := uint32(id), uint32(id>>32)
	if turn == 0 || int(n) >= len(c.events) || c.events[n].turn != turn || c.events[n].place < 0 {
		return false
	}
	c.remove(int(c.events[n].place))
	return true
}

// Step advances to the earliest event and runs it; false if there is none.
func (c *Clock) Step() bool {
	if len(c.heap) == 0 {
		return false
	}
	e := &c.events[c.heap[0]]
	if e.at < c.now {
		panic(fmt.Sprintf("sim: an event at %v, yet it is %v", e.at, c.now))
	}
	c.now = e.at
	run := e.run
	c.remove(0) // first: the event may call At and Cancel
	run()
	return true
}

// remove takes the entry at place out of the heap and frees its event.
func (c *Clock) remove(place int) {
	n, last := c.heap[place], len(c.heap)-1
	c.heap[place] = c.heap[last]
	c.events[c.heap[place]].place = int32(place)
	c.heap = c.heap[:last]
	if place < last {
		c.down(place)
		c.up(place)
	}
	c.events[n].run, c.events[n].place = nil, -1
	c.spare = append(c.spare, n)
}

func (c *Clock) before(i, j int) bool {
	a, b := &c.events[c.heap[i]], &c.events[c.heap[j]]
	return a.at < b.at || a.at == b.at && a.order < b.order
}

func (c *Clock) swap(i, j int) {
	c.heap[i], c.heap[j] = c.heap[j], c.heap[i]
	c.events[c.heap[i]].place, c.events[c.heap[j]].place = int32(i), int32(j)
}

func (c *Clock) up(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if !c.before(i, parent) {
			return
		}
		c.swap(i, parent)
		i = parent
	}
}

func (c *Clock) down(i int) {
	for {
		child := 2*i + 1
		if child >= len(c.heap) {
			return
		}
		if child+1 < len(c.heap) && c.before(child+1, child) {
			child++
		}
		if !c.before(child, i) {
			return
		}
		c.swap(i, child)
		i = child
	}
}
