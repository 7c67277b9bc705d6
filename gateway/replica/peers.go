package replica

import (
	"reflect"
	"time"

	"github.com/coppice-llm/coppice/router"
)

// peers is the state of the other routers. It reads no clock. One goroutine uses it at a time.
type peers struct {
	silence time.Duration
	most    int
	all     map[router.ReplicaID]*peer
	left    map[router.ReplicaID]uint64 // epochs of routers that said goodbye; their late messages are ignored
	held    int                         // bytes of memory of incomplete snapshots
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

	// top is the highest number of an event that is known to exist. first and last are the lowest
	// and the highest number of an event that has not arrived, both 0 if none is missing. NATS
	// keeps the order of a router's messages, so an event that has not arrived before a later one
	// is lost.
	top, first, last uint64

	asked   time.Time
	wanted  bool // ask for a snapshot
	reset   bool // the next snapshot replaces all that is known of the peer
	refused bool // the router refused some events: unknown worker, or a limit

	snapshot pieces
}

// mostLeft bounds the entries of left.
const mostLeft = 64

// mostHeld bounds the memory of incomplete snapshots of all peers together, in bytes.
const mostHeld = 128 << 20

// eventMemory is the memory that an event takes besides its hashes, in bytes.
var eventMemory = int(reflect.TypeFor[router.Event]().Size())

// verdict is the way to handle a message.
type verdict uint8

const (
	ignore verdict = iota // ignore it
	apply                 // apply it
	forget                // its sender has left: forget it
)

// receive updates the state of the sender of message m, which arrived at now. It returns the
// sender's state (nil if the message must be ignored or its sender was unknown) and the way to
// handle the message.
func (p *peers) receive(now time.Time, m *message) (*peer, verdict) {
	x := p.all[m.replica]
	switch {
	case x != nil && m.epoch < x.epoch, m.epoch <= p.left[m.replica]:
		p.counts.Late++
		return nil, ignore
	case m.kind == wireGoodbye:
		p.counts.Goodbyes++
		if len(p.left) >= mostLeft {
			clear(p.left)
		}
		p.left[m.replica] = m.epoch
		p.drop(m.replica)
		return x, forget
	case x == nil && len(p.all) >= p.most:
		p.counts.TooMany++
		return nil, ignore
	case x == nil || m.epoch > x.epoch:
		p.drop(m.replica)
		x = &peer{id: m.replica, epoch: m.epoch}
		p.all[m.replica] = x
	}
	x.heard = now
	switch m.kind {
	case wireHere, wireAsk, wireSnapshot:
		p.take(x, m.seq+1, m.seq+1)
	case wireEvents:
		p.take(x, m.seq, m.seq+uint64(len(m.events)))
	}
	return x, apply
}

// drop removes a peer with its incomplete snapshot.
func (p *peers) drop(id router.ReplicaID) {
	if x := p.all[id]; x != nil {
		p.held -= x.snapshot.bytes
		delete(p.all, id)
	}
}

// take records that the events of x with numbers [from, to) have arrived, and that all events
// before them exist. If some of those are missing, a snapshot is wanted.
func (p *peers) take(x *peer, from, to uint64) {
	if from > x.top+1 {
		if x.first == 0 {
			x.first = x.top + 1
			if x.first > 1 { // a new peer always starts with a gap
				p.counts.Gaps++
			}
		}
		x.last, x.wanted = from-1, true
	}
	x.top = max(x.top, to-1)
}

// missing returns the number of events from the first to the last one that has not arrived.
func (x *peer) missing() uint64 {
	if x.first == 0 {
		return 0
	}
	return x.last + 1 - x.first
}

// caughtUp records that a snapshot of x was applied, so all events up to seq are known. refused
// says that the router refused a reservation in it.
func (p *peers) caughtUp(x *peer, seq uint64, refused bool) {
	p.counts.TakenSnapshots++
	if x.first = seq + 1; x.first > x.last {
		x.first, x.last = 0, 0
	}
	x.wanted, x.reset, x.refused = x.first > 0, false, refused
}

// wants reports whether a snapshot that includes the events up to seq is useful.
func (x *peer) wants(seq uint64) bool {
	if x.reset && seq < x.top {
		return false // it would undo later events
	}
	return x.refused || x.wanted && seq >= x.first
}

// askEvery is the time between two requests for a snapshot, refusedEvery the time after refused
// events.
const (
	askEvery     = 250 * time.Millisecond
	refusedEvery = 10 * time.Second
)

// due returns the time at which to ask the peer for a snapshot, or the zero time if none is
// needed.
func (x *peer) due() time.Time {
	switch {
	case x.wanted:
		return x.asked.Add(askEvery)
	case x.refused:
		return x.asked.Add(refusedEvery)
	}
	return time.Time{}
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

// pieces is a snapshot of which the first pieces have arrived.
type pieces struct {
	router.Snapshot
	here, all int // number of pieces
	bytes     int
}

// collect adds piece m, which takes this many bytes of memory, to the snapshot of x, which keeps the
// events of m. It returns the snapshot with the last piece, else nil. Pieces arrive in order; if
// one is missing, or incomplete snapshots take more than mostHeld bytes together, this snapshot
// is dropped.
func (p *peers) collect(x *peer, m *message, bytes int) *router.Snapshot {
	s := &x.snapshot
	if m.piece == 0 {
		p.held -= s.bytes
		*s = pieces{Snapshot: router.Snapshot{Replica: m.replica, Epoch: m.epoch, Seq: m.seq, LastID: m.lastID}, all: m.pieces}
	}
	if s.Seq != m.seq || s.LastID != m.lastID || s.all != m.pieces || s.here != m.piece {
		return nil
	}
	s.Events = append(s.Events, m.events...)
	s.here++
	s.bytes += bytes
	p.held += bytes
	whole, overflow := s.here == s.all, p.held > mostHeld
	if !whole && !overflow {
		return nil
	}
	done := s.Snapshot
	p.held -= s.bytes
	*s = pieces{}
	if overflow {
		p.counts.Overflows++
		return nil
	}
	return &done
}
