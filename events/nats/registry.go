package nats

import (
	"bytes"
	"fmt"
	"time"
)

// registry is who is there, as far as announcements tell. It has no clock, and belongs to
// one goroutine.
type registry struct {
	cfg     WatcherConfig
	names   map[string]*entry
	changed []string // names that the reader may not know the latest of, each once
	metrics WatcherMetrics
}

// entry is one name.
type entry struct {
	epoch   uint64    // 0: not told
	payload []byte    // nil: gone
	told    []byte    // what the reader knows, nil: not there
	last    time.Time // it was heard
	doubted time.Time // and asked in vain, if not zero
	queued  bool      // in changed
}

// WatcherMetrics counts since the start.
type WatcherMetrics struct {
	Names     int    // now, with those whose end the reader has not heard of
	Heard     uint64 // announcements that were believed
	Goodbyes  uint64
	Lost      uint64 // that fell silent
	Stale     uint64 // of an earlier process of the name, passed over
	Malformed uint64 // impossible names and headers, payloads that are too long
	TooMany   uint64 // of names beyond MaxNames, passed over
	Dropped   uint64 // that came faster than they could be read
	Outages   uint64 // times that all got a new term, for there was no server, or a new connection
}

func (m WatcherMetrics) String() string {
	return fmt.Sprintf("names %d, heard %d (goodbyes %d, stale %d, malformed %d, too many %d, dropped %d), lost %d, outages %d",
		m.Names, m.Heard, m.Goodbyes, m.Stale, m.Malformed, m.TooMany, m.Dropped, m.Lost, m.Outages)
}

// hear takes one announcement; an empty payload is a goodbye.
func (r *registry) hear(now time.Time, name string, epoch uint64, payload []byte) {
	if len(payload) > r.cfg.MaxPayload || !validName(name) {
		r.metrics.Malformed++
		return
	}
	e := r.names[name]
	switch {
	case e != nil && epoch != 0 && epoch < e.epoch:
		r.metrics.Stale++
		return
	case e == nil && len(payload) == 0:
		r.metrics.Goodbyes++ // of who was not there
		return
	case e == nil && len(r.names) >= r.cfg.MaxNames:
		r.metrics.TooMany++
		return
	case e == nil:
		e = &entry{}
		r.names[name] = e
	}
	r.metrics.Heard++
	e.epoch, e.last, e.doubted = max(epoch, e.epoch), now, time.Time{}
	if len(payload) == 0 {
		r.metrics.Goodbyes++
		payload = nil
	}
	r.set(name, e, payload)
}

func (r *registry) set(name string, e *entry, payload []byte) {
	e.payload = payload
	if !e.queued && !e.known() {
		e.queued = true
		r.changed = append(r.changed, name)
	}
}

// known tells whether the reader knows the latest.
func (e *entry) known() bool {
	return (e.payload == nil) == (e.told == nil) && bytes.Equal(e.payload, e.told)
}

// next is the first thing that the reader does not know yet. It stays that until told.
func (r *registry) next() (Change, bool) {
	for len(r.changed) > 0 {
		name := r.changed[0]
		if e := r.names[name]; !e.known() {
			return Change{Name: name, Payload: e.payload}, true
		}
		r.settle() // it came and went, or went and came
	}
	return Change{}, false
}

// told says that the reader has c, which is what next gave.
func (r *registry) told(c Change) {
	r.names[c.Name].told = c.Payload
	r.settle()
}

// settle takes the first of changed out, and forgets who is gone for all.
func (r *registry) settle() {
	name := r.changed[0]
	r.changed = r.changed[1:]
	e := r.names[name]
	e.queued = false
	if e.payload == nil && e.told == nil {
		delete(r.names, name)
	}
}

// judge takes those for gone who were silent for Grace and did not answer within another
// quarter of it. ask tells that there are some to be asked, by doubt once that is done. due
// is when to judge again.
func (r *registry) judge(now time.Time) (due time.Time, ask bool) {
	due = now.Add(r.cfg.Grace)
	for name, e := range r.names {
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
			e.epoch = 0 // whoever comes next is believed
			r.set(name, e, nil)
		}
	}
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
