package sim

import (
	"fmt"
	"time"

	"github.com/coppice-llm/coppice/internal/heap"
)

// Clock is virtual time: a heap of events, ordered by time and, at equal times, by the order of
// the calls of At. It belongs to one goroutine; several backends and drivers may share it.
// NewClock makes one.
type Clock struct {
	now    time.Duration
	order  uint64
	events events // by number; spare lists the numbers of free entries
	spare  []int32
	heap   heap.Heap[pending, events]
}

// EventID names a pending event. The zero EventID names none.
type EventID uint64

// event is one entry of Clock.events. place is its index in the heap, or -1 if it is free.
type event struct {
	run   func()
	turn  uint32 // number of uses of the entry; part of the EventID, so that Cancel ignores ids of earlier uses
	place int32
}

// pending is an event in the heap: its time, the number of its call of At, and its index in
// Clock.events.
type pending struct {
	at     time.Duration
	order  uint64
	number int32
}

// Before implements heap.Element.
func (a pending) Before(b pending) bool { return a.at < b.at || a.at == b.at && a.order < b.order }

type events []event

// Place implements heap.Places.
func (e events) Place(x pending, at int) { e[x.number].place = int32(at) }

// NewClock returns a clock at time zero.
func NewClock() *Clock { return &Clock{} }

// Now returns the time of the running event; if none runs, that of the last event that ran.
func (c *Clock) Now() time.Duration { return c.now }

// Len returns the number of pending events.
func (c *Clock) Len() int { return len(c.heap.Items) }

// At schedules f for time t and returns an id for Cancel. Events of equal time run in the order of
// the calls of At. A time in the past counts as now. At panics if f is nil. Cost O(log pending),
// no allocation in steady state.
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
	e.run, e.turn = f, e.turn+1
	c.heap.Push(c.events, pending{max(t, c.now), c.order, n})
	return EventID(uint64(e.turn)<<32 | uint64(n))
}

// Cancel removes a pending event. It returns false if the event has run, is running or was
// cancelled.
func (c *Clock) Cancel(id EventID) bool {
	n, turn := uint32(id), uint32(id>>32)
	if turn == 0 || int(n) >= len(c.events) || c.events[n].turn != turn || c.events[n].place < 0 {
		return false
	}
	c.remove(int(c.events[n].place))
	return true
}

// Step advances to the earliest event and runs it. It returns false if there is none.
func (c *Clock) Step() bool {
	if c.Len() == 0 {
		return false
	}
	next := c.heap.Items[0]
	if next.at < c.now {
		panic(fmt.Sprintf("sim: an event at %v, yet it is %v", next.at, c.now))
	}
	c.now = next.at
	run := c.events[next.number].run
	c.remove(0) // first: the event may call At and Cancel
	run()
	return true
}

// remove removes the entry at index place from the heap and frees its event.
func (c *Clock) remove(place int) {
	n := c.heap.Remove(c.events, place).number
	c.events[n].run, c.events[n].place = nil, -1
	c.spare = append(c.spare, n)
}
