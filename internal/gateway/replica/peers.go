package replica

import (
	"slices"
	"time"

	"github.com/coppice-llm/coppice/router"
)

// peers is the state of the other routers. It reads no clock. One goroutine uses it at a time.
type peers struct {
	silence time.Duration
	most    int
	all     map[router.ReplicaID]*peer
	left    []process // ring of processes that said goodbye; their late messages are ignored
	oldest  int       // position of the oldest in left
	held    int       // bytes of incomplete snapshots
	counts  Counts
}

// Counts counts messages by their outcome since the start.
type Counts struct {
	SentEvents, ReceivedEvents                            uint64
	Malformed                                             uint64 // messages
	Versions                                              uint64 // messages of another version
	Doubted                                               uint64 // claims on sessions from the future
	Own                                                   uint64 // messages that came back to their sender
	Foreign                                               uint64 // messages of routers with another block size
	TooMany                                               uint64 // messages of routers beyond Router.MaxPeers
	Late                                                  uint64 // messages of router processes that had left or been replaced before
	Gaps                                                  uint64 // times that events of a router were missing
	Goodbyes, Lost                                        uint64 // routers that left, by goodbye or by silence
	Asked, SentSnapshots, TakenSnapshots, ShortenedEvents uint64
	Overflows                                             uint64 // snapshots too long to be kept
}

// peer is the state of another router.
type peer struct {
	id    router.ReplicaID
	epoch uint64
	heard time.Time

	// next is the lowest number of an event that has not arrived. later holds the ranges of
	// events that arrived after it, ascending and not adjacent. top is the highest number that
	// is known to exist. Example: of events 1 to 7, 1, 2, 5 and 6 have arrived; next is 3, later
	// is [5, 7) and top is 7.
	next  uint64
	later []span
	top   uint64

	gapSince time.Time // time since which events are missing; zero: none
	asked    time.Time
	wanted   bool // ask for a snapshot even if no event is missing
	reset    bool // the next snapshot replaces all that is known of the peer
	refused  bool // the router refused some events: unknown worker, or a limit

	snapshot pieces
}

// span is the range of sequence numbers [from, to).
type span struct{ from, to uint64 }

// mostLater bounds the ranges in peer.later. The highest ones are dropped; a snapshot brings
// their events.
const mostLater = 16

// mostLeft bounds the processes in left.
const mostLeft = 64

// mostHeld bounds the bytes of incomplete snapshots of all peers together.
const mostHeld = 128 << 20

// verdict is the way to handle a message.
type verdict uint8

const (
	ignore verdict = iota // ignore it
	apply                 // apply it
	forget                // its sender has left: forget it
)

// process is one run of a router. Another run with the same ID has a later epoch.
type process struct {
	id    router.ReplicaID
	epoch uint64
}

// receive updates the state of the sender of message m, which arrived at now. It returns the
// sender's state (nil if the message must be ignored or its sender was unknown) and the way to
// handle the message.
func (p *peers) receive(now time.Time, m *message) (*peer, verdict) {
	x := p.all[m.replica]
	switch {
	case x != nil && m.epoch < x.epoch, slices.ContainsFunc(p.left, func(l process) bool { return l.id == m.replica && m.epoch <= l.epoch }):
		p.counts.Late++
		return nil, ignore
	case m.kind == wireGoodbye:
		p.counts.Goodbyes++
		p.remember(process{m.replica, m.epoch})
		p.drop(m.replica)
		return x, forget
	case x == nil && len(p.all) >= p.most:
		p.counts.TooMany++
		return nil, ignore
	case x == nil || m.epoch > x.epoch:
		p.drop(m.replica)
		x = &peer{id: m.replica, epoch: m.epoch, next: 1}
		p.all[m.replica] = x
	}
	x.heard = now
	switch m.kind {
	case wireHere, wireAsk, wireSnapshot:
		x.top = max(x.top, m.seq)
	case wireEvents:
		x.take(m.seq, m.seq+uint64(len(m.events)))
	}
	p.updateGap(now, x)
	return x, apply
}

// remember adds a process to left, in place of the oldest one if left is full.
func (p *peers) remember(gone process) {
	if len(p.left) < mostLeft {
		p.left = append(p.left, gone)
		return
	}
	p.left[p.oldest] = gone
	p.oldest = (p.oldest + 1) % mostLeft
}

// drop removes a peer with its incomplete snapshot.
func (p *peers) drop(id router.ReplicaID) {
	if x := p.all[id]; x != nil {
		p.held -= x.snapshot.bytes
		delete(p.all, id)
	}
}

// take records that the events with numbers [from, to) have arrived.
func (x *peer) take(from, to uint64) {
	x.top = max(x.top, to-1)
	if from > x.next {
		// The first range that touches [from, to) or follows it.
		lo := slices.IndexFunc(x.later, func(s span) bool { return s.to >= from })
		if lo < 0 {
			lo = len(x.later)
		}
		hi := lo
		for hi < len(x.later) && x.later[hi].from <= to {
			from, to = min(from, x.later[hi].from), max(to, x.later[hi].to)
			hi++
		}
		x.later = slices.Replace(x.later, lo, hi, span{from, to})
		if len(x.later) > mostLater {
			x.later = x.later[:mostLater]
		}
		return
	}
	x.next = max(x.next, to)
	x.merge()
}

// merge removes from later the ranges that next has reached, and advances next to their end.
func (x *peer) merge() {
	n := 0
	for n < len(x.later) && x.later[n].from <= x.next {
		x.next = max(x.next, x.later[n].to)
		n++
	}
	x.later = slices.Delete(x.later, 0, n)
}

// updateGap records in gapSince whether an event of x is missing. If one is missing for the
// first time, gapSince becomes now.
func (p *peers) updateGap(now time.Time, x *peer) {
	switch missing := x.next <= x.top; {
	case !missing:
		x.gapSince = time.Time{}
	case x.gapSince.IsZero():
		x.gapSince = now
		if x.next > 1 { // a new peer always starts with a gap
			p.counts.Gaps++
		}
	}
}

// caughtUp records that a snapshot of x was applied, so all events up to seq are known. refused
// says that the router refused a reservation in it.
func (p *peers) caughtUp(now time.Time, x *peer, seq uint64, refused bool) {
	p.counts.TakenSnapshots++
	if x.reset {
		x.next, x.later = 1, nil
	}
	x.wanted, x.reset, x.refused = false, false, refused
	x.take(1, seq+1)
	p.updateGap(now, x)
}

// wants reports whether a snapshot that includes the events up to seq is useful.
func (x *peer) wants(seq uint64) bool {
	if x.reset && seq+1 < x.next {
		return false // it would undo later events
	}
	return x.wanted || x.reset || x.refused || seq >= x.next
}

// patience is how long a gap stays open before a snapshot is requested, since messages may just
// be late. askEvery is the time between two requests, refusedEvery the time after refused
// events.
const (
	patience     = 20 * time.Millisecond
	askEvery     = 250 * time.Millisecond
	refusedEvery = 10 * time.Second
)

// due returns the time at which to ask the peer for a snapshot, or the zero time if none is
// needed.
func (x *peer) due() time.Time {
	var at time.Time
	switch {
	case x.wanted:
		at = x.asked.Add(askEvery)
	case !x.gapSince.IsZero():
		at = x.gapSince.Add(patience)
		if again := x.asked.Add(askEvery); again.After(at) {
			at = again
		}
	case x.refused:
		at = x.asked.Add(refusedEvery)
	}
	return at
}

// settle calls ask for each peer that is due to be asked for a snapshot at now. Each peer that
// has been silent too long is removed, and settle calls lost for it. It returns the time of the
// next call.
func (p *peers) settle(now time.Time, ask, lost func(*peer)) time.Time {
	next := now.Add(p.silence)
	for _, x := range p.all { // the order does not matter: peers are independent
		end := x.heard.Add(p.silence)
		if !now.Before(end) {
			p.counts.Lost++
			p.drop(x.id)
			lost(x)
			continue
		}
		due := x.due()
		if !due.IsZero() && !now.Before(due) {
			p.counts.Asked++
			x.asked = now
			ask(x)
			due = x.due()
		}
		for _, t := range [...]time.Time{end, due} {
			if !t.IsZero() && t.Before(next) {
				next = t
			}
		}
	}
	return next
}

// want makes a snapshot of every peer due. With reset that snapshot replaces all that is known
// of the peer.
func (p *peers) want(reset bool) {
	for _, x := range p.all {
		x.wanted = true
		x.reset = x.reset || reset
	}
}

// pieces holds the pieces of a snapshot that have arrived; a nil element of all has not.
type pieces struct {
	seq, lastID uint64
	all         [][]byte
	here        int // pieces received
	bytes       int
}

// collect stores a piece m of a snapshot of x. payload is the encoded message, which collect
// keeps. When all pieces have arrived, it returns their payloads, else nil. If incomplete
// snapshots take more than mostHeld bytes together, this one is dropped.
func (p *peers) collect(x *peer, m *message, payload []byte) [][]byte {
	s := &x.snapshot
	if s.seq != m.seq || s.lastID != m.lastID || len(s.all) != m.pieces {
		if s.here > 0 && s.seq > m.seq {
			return nil // a late piece of an earlier snapshot
		}
		p.held -= s.bytes
		*s = pieces{seq: m.seq, lastID: m.lastID, all: make([][]byte, m.pieces)}
	}
	if s.all[m.piece] != nil {
		return nil
	}
	if p.held+len(payload) > mostHeld {
		p.counts.Overflows++
		p.held -= s.bytes
		*s = pieces{}
		return nil
	}
	s.all[m.piece] = payload
	s.here++
	s.bytes += len(payload)
	p.held += len(payload)
	if s.here < len(s.all) {
		return nil
	}
	all := s.all
	p.held -= s.bytes
	*s = pieces{}
	return all
}
