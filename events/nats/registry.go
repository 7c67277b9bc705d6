package nats

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"time"
)

// registry is who is there, as far as announcements tell. It has no clock, and belongs to
// one goroutine.
type registry struct {
	cfg     WatcherConfig
	names   map[Process]*entry
	changed []Process // those that the reader may not know the latest of, each once
	metrics WatcherMetrics
}

// Process is who announces itself: several may do so under one name, an earlier one and the
// later one that took its place, or two that were given the same name by mistake.
type Process struct {
	Name  string
	Epoch uint64 // 0: not told
}

// Compare orders by name, then by epoch.
func (p Process) Compare(q Process) int {
	return cmp.Or(cmp.Compare(p.Name, q.Name), cmp.Compare(p.Epoch, q.Epoch))
}

// entry is one of them.
type entry struct {
	payload []byte    // nil: gone
	told    []byte    // what the reader knows, nil: not there
	last    time.Time // it was heard
	doubted time.Time // and asked in vain, if not zero
	queued  bool      // in changed
}

// WatcherMetrics counts since the start.
type WatcherMetrics struct {
	Names     int    // now, each process by itself, with those whose end the reader has not heard of
	Heard     uint64 // announcements that were believed
	Goodbyes  uint64
	Lost      uint64 // that fell silent
	Malformed uint64 // impossible names and headers, payloads that are too long
	TooMany   uint64 // of names beyond MaxNames, passed over
	Dropped   uint64 // that came faster than they could be read
	Outages   uint64 // times that all got a new term, for there was no server, or a new connection
}

func (m WatcherMetrics) String() string {
	return fmt.Sprintf("names %d, heard %d (goodbyes %d, malformed %d, too many %d, dropped %d), lost %d, outages %d",
		m.Names, m.Heard, m.Goodbyes, m.Malformed, m.TooMany, m.Dropped, m.Lost, m.Outages)
}

// hear takes one announcement; an empty payload is a goodbye.
func (r *registry) hear(now time.Time, name string, epoch uint64, payload []byte) {
	if len(payload) > r.cfg.MaxPayload || !validName(name) {
		r.metrics.Malformed++
		return
	}
	p := Process{name, epoch}
	e := r.names[p]
	switch {
	case e == nil && len(payload) == 0:
		r.metrics.Goodbyes++ // of who was not there
		return
	case e == nil && len(r.names) >= r.cfg.MaxNames:
		r.metrics.TooMany++
		return
	case e == nil:
		e = &entry{}
		r.names[p] = e
	}
	r.metrics.Heard++
	e.last, e.doubted = now, time.Time{}
	if len(payload) == 0 {
		r.metrics.Goodbyes++
		payload = nil
	}
	r.set(p, e, payload)
}

func (r *registry) set(p Process, e *entry, payload []byte) {
	e.payload = payload
	if !e.queued && !e.known() {
		e.queued = true
		r.changed = append(r.changed, p)
	}
}

// known tells whether the reader knows the latest.
func (e *entry) known() bool {
	return (e.payload == nil) == (e.told == nil) && bytes.Equal(e.payload, e.told)
}

// next is the first thing that the reader does not know yet. It stays that until told.
func (r *registry) next() (Change, bool) {
	for len(r.changed) > 0 {
		p := r.changed[0]
		if e := r.names[p]; !e.known() {
			return Change{Process: p, Payload: e.payload}, true
		}
		r.settle() // it came and went, or went and came
	}
	return Change{}, false
}

// told says that the reader has c, which is what next gave.
func (r *registry) told(c Change) {
	r.names[c.Process].told = c.Payload
	r.settle()
}

// settle takes the first of changed out, and forgets who is gone for all.
func (r *registry) settle() {
	p := r.changed[0]
	r.changed = r.changed[1:]
	e := r.names[p]
	e.queued = false
	if e.payload == nil && e.told == nil {
		delete(r.names, p)
	}
}

// judge takes those for gone who were silent for Grace and did not answer within another
// quarter of it. ask tells that there are some to be asked, by doubt once that is done. due
// is when to judge again.
func (r *registry) judge(now time.Time) (due time.Time, ask bool) {
	due = now.Add(r.cfg.Grace)
	first := len(r.changed)
	for p, e := range r.names {
		if e.payload == nil {
			continue
		}
		end := e.last.Add(r.cfg.Grace)
		if !e.doubted.IsZero() {
			end = e.doubted.Add(r.cfg.Grace / 4)
		}
		switch {
		case now.Before(end):
			if end.Before(due) {
				due = end
			}
		case e.doubted.IsZero():
			ask = true
		default:
			r.metrics.Lost++
			r.set(p, e, nil)
		}
	}
	slices.SortFunc(r.changed[first:], Process.Compare)
	return due, ask
}

// doubt notes that all have been asked, for those who had been silent for too long.
func (r *registry) doubt(now time.Time) {
	for _, e := range r.names {
		if e.payload != nil && e.doubted.IsZero() && !now.Before(e.last.Add(r.cfg.Grace)) {
			e.doubted = now
		}
	}
}

// pardon gives everybody a new term: they may have spoken, and nobody could hear it.
func (r *registry) pardon(now time.Time) {
	r.metrics.Outages++
	for _, e := range r.names {
		e.last, e.doubted = now, time.Time{}
	}
}
