package ptxvm

import (
	"fmt"
	"slices"
)

// Stream and Event identify streams and events of a Machine.
type (
	Stream int
	Event  int
)

// opID numbers operations in the order of queueing; 0 means none.
type opID uint32

// clock holds, for each stream, how many of its operations, from the first on, are ordered before
// the owner of the clock.
type clock []uint32

func (c clock) at(s Stream) uint32 {
	if int(s) < len(c) {
		return c[s]
	}
	return 0
}

func join(a, b clock) clock {
	r := slices.Clone(a)
	for i, v := range b {
		if i < len(r) {
			r[i] = max(r[i], v)
		} else {
			r = append(r, v)
		}
	}
	return r
}

type operation struct {
	stream Stream
	number uint32 // on its stream, from 1
	before clock  // operations ordered before it
	name   string
}

type stream struct {
	known clock // operations ordered before the next one
	count uint32
	queue []queued // not run yet
}

type queued struct {
	op  opID
	run func(opID) error
}

// event marks a position in a stream.
type event struct {
	stream   Stream
	number   uint32 // operations of the stream before it
	known    clock
	recorded bool
}

// NewStream returns a new stream. Only events order streams.
func (m *Machine) NewStream() Stream {
	m.streams = append(m.streams, &stream{known: slices.Clone(m.host)})
	return Stream(len(m.streams) - 1)
}

// NewEvent returns a new event. It counts as passed until it is recorded.
func (m *Machine) NewEvent() Event {
	m.events = append(m.events, event{})
	return Event(len(m.events) - 1)
}

func (m *Machine) enqueue(id Stream, name string, run func(opID) error) {
	s := m.streams[id]
	s.count++
	s.known = join(s.known, m.host)
	for len(s.known) <= int(id) {
		s.known = append(s.known, 0)
	}
	s.known[id] = s.count
	m.ops = append(m.ops, operation{id, s.count, slices.Clone(s.known), name})
	s.queue = append(s.queue, queued{opID(len(m.ops) - 1), run})
}

// before reports whether op is ordered before the running operation.
func (m *Machine) before(op opID) bool {
	if op <= m.floor {
		return true
	}
	o := &m.ops[op]
	return m.ops[m.current].before.at(o.stream) >= o.number
}

func (m *Machine) opName(op opID) string {
	return fmt.Sprintf("%s on stream %d", m.ops[op].name, m.ops[op].stream)
}

// Record makes the event mark all operations queued on the stream so far.
func (m *Machine) Record(e Event, id Stream) error {
	s := m.streams[id]
	m.events[e] = event{stream: id, number: s.count, known: join(s.known, m.host), recorded: true}
	return m.fault
}

// Wait makes operations queued on the stream from now on wait for those that the event marks now.
func (m *Machine) Wait(id Stream, e Event) error {
	ev := m.events[e]
	if !ev.recorded || m.fault != nil {
		return m.fault
	}
	s := m.streams[id]
	s.known = join(s.known, ev.known)
	m.enqueue(id, "wait", func(opID) error { return m.through(ev.stream, ev.number) })
	return nil
}

// through runs operations of stream id, in order, up to the one with the given number.
func (m *Machine) through(id Stream, number uint32) error {
	s := m.streams[id]
	for m.fault == nil && len(s.queue) > 0 && m.ops[s.queue[0].op].number <= number {
		next := s.queue[0]
		s.queue = s.queue[1:]
		if err := m.perform(next); err != nil {
			m.fault = err
		}
	}
	return m.fault
}

// perform runs one operation. A wait runs the operations that it waits for.
func (m *Machine) perform(q queued) error {
	outer := m.current
	m.current = q.op
	err := q.run(q.op)
	m.current = outer
	return err
}

// SyncEvent runs all operations that the event marks.
func (m *Machine) SyncEvent(e Event) error {
	ev := m.events[e]
	if !ev.recorded || m.fault != nil {
		return m.fault
	}
	err := m.through(ev.stream, ev.number)
	m.host = join(m.host, ev.known)
	return err
}

// Passed reports whether the event has passed. It runs nothing.
func (m *Machine) Passed(e Event) (bool, error) {
	ev := m.events[e]
	s := ev.stream
	return !ev.recorded || len(m.streams[s].queue) == 0 || m.ops[m.streams[s].queue[0].op].number > ev.number, m.fault
}

// SyncStream runs all operations of a stream, and those that they wait for.
func (m *Machine) SyncStream(id Stream) error {
	s := m.streams[id]
	err := m.through(id, s.count)
	m.host = join(m.host, s.known)
	return err
}

// Sync runs all operations.
func (m *Machine) Sync() error {
	for id := range m.streams {
		if err := m.SyncStream(Stream(id)); err != nil {
			return err
		}
	}
	m.floor = opID(len(m.ops) - 1)
	return m.fault
}
