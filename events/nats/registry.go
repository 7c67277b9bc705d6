package nats

import (
	"bytes"
	"cmp"
	"slices"
	"time"
)

// registry holds the announced processes. It reads no clock. One goroutine owns it.
type registry struct {
	cfg     WatcherConfig
	names   map[Process]*entry
	changed []Process // processes whose latest state the reader may not know, each once
	metrics WatcherMetrics
}

// Process is one process that announces itself. Several may share a name: an earlier one and its
// successor, or two that were given the same name by mistake.
type Process struct {
	Name  string
	Epoch uint64 // 0: the announcement has no epoch
}

// Compare orders processes by name, then by epoch.
func (p Process) Compare(q Process) int {
	return cmp.Or(cmp.Compare(p.Name, q.Name), cmp.Compare(p.Epoch, q.Epoch))
}

// entry is the state of one process.
type entry struct {
	payload   []byte    // nil: gone
	delivered []byte    // last payload given to the reader; nil: gone or unknown
	last      time.Time // time of the last announcement
	askedAt   time.Time // time of an unanswered question; zero: none
	queued    bool      // in changed
}

// WatcherMetrics counts since the start.
type WatcherMetrics struct {
	Names     int    // current processes, including gone ones that the reader has not been told of
	Heard     uint64 // accepted announcements
	Goodbyes  uint64
	Lost      uint64 // processes that are gone because they were silent too long
	Malformed uint64 // invalid names and headers, and payloads that are too long
	TooMany   uint64 // announcements of names beyond MaxNames, ignored
	Dropped   uint64 // announcements dropped because they came faster than they were read
	Outages   uint64 // times that all deadlines were renewed, because there was no server or the connection is new
}

// receive applies an announcement that arrived at now. An empty payload is a goodbye.
func (r *registry) receive(now time.Time, name string, epoch uint64, payload []byte) {
	if len(payload) > r.cfg.MaxPayload || !validName(name) {
		r.metrics.Malformed++
		return
	}
	p := Process{name, epoch}
	e := r.names[p]
	switch {
	case e == nil && len(payload) == 0:
		r.metrics.Goodbyes++ // of an unknown process
		return
	case e == nil && len(r.names) >= r.cfg.MaxNames:
		r.metrics.TooMany++
		return
	case e == nil:
		e = &entry{}
		r.names[p] = e
	}
	r.metrics.Heard++
	e.last, e.askedAt = now, time.Time{}
	if len(payload) == 0 {
		r.metrics.Goodbyes++
		payload = nil
	}
	r.set(p, e, payload)
}

// set stores payload as the state of process p with entry e. If the reader does not know this
// state, the process is queued for the reader.
func (r *registry) set(p Process, e *entry, payload []byte) {
	e.payload = payload
	if !e.queued && !e.known() {
		e.queued = true
		r.changed = append(r.changed, p)
	}
}

// known reports whether the reader knows the current state of the process.
func (e *entry) known() bool {
	return (e.payload == nil) == (e.delivered == nil) && bytes.Equal(e.payload, e.delivered)
}

// next returns the first change that the reader does not know yet, or false. It returns the same
// process again until delivered is called.
func (r *registry) next() (Change, bool) {
	for len(r.changed) > 0 {
		p := r.changed[0]
		if e := r.names[p]; !e.known() {
			return Change{Process: p, Payload: e.payload}, true
		}
		r.dequeue() // it changed back meanwhile
	}
	return Change{}, false
}

// delivered records that the reader has received c, the result of next.
func (r *registry) delivered(c Change) {
	r.names[c.Process].delivered = c.Payload
	r.dequeue()
}

// dequeue removes the first element of changed. If that process is gone and the reader knows it,
// its entry is deleted too.
func (r *registry) dequeue() {
	p := r.changed[0]
	r.changed = r.changed[1:]
	e := r.names[p]
	e.queued = false
	if e.payload == nil && e.delivered == nil {
		delete(r.names, p)
	}
}

// expire marks processes as gone that were silent for Grace, were then asked, and did not answer
// within another quarter of Grace. ask reports that some processes must be asked now; after
// asking, call noteAsked. due is the time of the next call.
func (r *registry) expire(now time.Time) (due time.Time, ask bool) {
	due = now.Add(r.cfg.Grace)
	first := len(r.changed)
	for p, e := range r.names {
		if e.payload == nil {
			continue
		}
		end := e.last.Add(r.cfg.Grace)
		if !e.askedAt.IsZero() {
			end = e.askedAt.Add(r.cfg.Grace / 4)
		}
		switch {
		case now.Before(end):
			if end.Before(due) {
				due = end
			}
		case e.askedAt.IsZero():
			ask = true
		default:
			r.metrics.Lost++
			r.set(p, e, nil)
		}
	}
	slices.SortFunc(r.changed[first:], Process.Compare)
	return due, ask
}

// noteAsked records that all processes that have been silent for Grace were asked at now.
func (r *registry) noteAsked(now time.Time) {
	for _, e := range r.names {
		if e.payload != nil && e.askedAt.IsZero() && !now.Before(e.last.Add(r.cfg.Grace)) {
			e.askedAt = now
		}
	}
}

// renew lets all deadlines count from now, after a time in which announcements could not be
// received.
func (r *registry) renew(now time.Time) {
	r.metrics.Outages++
	for _, e := range r.names {
		e.last, e.askedAt = now, time.Time{}
	}
}
