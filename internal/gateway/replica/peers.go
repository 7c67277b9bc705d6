package replica

import (
	"slices"
	"time"

	"github.com/coppice-llm/coppice/router"
)

// peers is what is known of the other gateways. It has no clock, and belongs to one
// goroutine.
type peers struct {
	silence time.Duration
	most    int
	all     map[router.ReplicaID]*peer
	left    []process // who said goodbye, a ring: what comes late is not believed
	oldest  int
	held    int // bytes of snapshots that are not complete
	counts  Counts
}

// Counts is what became of messages since the start.
type Counts struct {
	SentEvents, ReceivedEvents                            uint64
	Malformed                                             uint64 // messages
	Versions                                              uint64 // messages of another version
	Doubted                                               uint64 // claims on sessions that are of the future
	Own                                                   uint64 // messages that came back
	Foreign                                               uint64 // messages of gateways with another block size
	TooMany                                               uint64 // messages of gateways beyond Router.MaxPeers
	Late                                                  uint64 // messages of gateways that had left, or restarted
	Gaps                                                  uint64 // times that events of a replica were missing
	Goodbyes, Lost                                        uint64 // replicas
	Asked, SentSnapshots, TakenSnapshots, ShortenedEvents uint64
	Overflows                                             uint64 // snapshots that were too long to be kept
}

// peer is another gateway.
type peer struct {
	id    router.ReplicaID
	epoch uint64
	heard time.Time

	// next: all events before it are here. later are those beyond it, ascending, apart from
	// each other. top is the last that there is.
	next  uint64
	later []span
	top   uint64

	behind  time.Time // since when events are missing; zero: none is
	asked   time.Time
	wanted  bool // a snapshot, though nothing is missing
	anew    bool // it is to be taken as if nothing were known
	refused bool // the router refused some of it: a worker that it does not know, or a limit

	snapshot pieces
}

// span is a range of numbers, [from, to).
type span struct{ from, to uint64 }

// mostLater bounds the ranges that are remembered beyond a gap; what is forgotten comes
// with the snapshot.
const mostLater = 16

// mostLeft bounds the gateways whose goodbye is remembered.
const mostLeft = 64

// mostHeld bounds the bytes of snapshots that are not complete, of all replicas.
const mostHeld = 128 << 20

// verdict is what is to be done with a message.
type verdict uint8

const (
	passOver verdict = iota
	heed
	forget // who sent it has left
)

// process is a gateway from its start to its end: under the same name a later one may begin.
type process struct {
	id    router.ReplicaID
	epoch uint64
}

// hear takes note of who speaks.
func (p *peers) hear(now time.Time, m *message) (*peer, verdict) {
	x := p.all[m.replica]
	switch {
	case x != nil && m.epoch < x.epoch, slices.ContainsFunc(p.left, func(l process) bool { return l.id == m.replica && m.epoch <= l.epoch }):
		p.counts.Late++
		return nil, passOver
	case m.kind == wireGoodbye:
		p.counts.Goodbyes++
		p.remember(process{m.replica, m.epoch})
		p.drop(m.replica)
		return x, forget
	case x == nil && len(p.all) >= p.most:
		p.counts.TooMany++
		return nil, passOver
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
	p.judge(now, x)
	return x, heed
}

func (p *peers) remember(gone process) {
	if len(p.left) < mostLeft {
		p.left = append(p.left, gone)
		return
	}
	p.left[p.oldest] = gone
	p.oldest = (p.oldest + 1) % mostLeft
}

func (p *peers) drop(id router.ReplicaID) {
	if x := p.all[id]; x != nil {
		p.held -= x.snapshot.bytes
		delete(p.all, id)
	}
}

// take notes that the events [from, to) are here.
func (x *peer) take(from, to uint64) {
	x.top = max(x.top, to-1)
	if from > x.next {
		lo := slices.IndexFunc(x.later, func(s span) bool { return s.to >= from }) // the first that it touches, or that is beyond it
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

// merge takes what later has and next has come up to.
func (x *peer) merge() {
	n := 0
	for n < len(x.later) && x.later[n].from <= x.next {
		x.next = max(x.next, x.later[n].to)
		n++
	}
	x.later = slices.Delete(x.later, 0, n)
}

// judge notes whether something is missing, and since when.
func (p *peers) judge(now time.Time, x *peer) {
	switch missing := x.next <= x.top; {
	case !missing:
		x.behind = time.Time{}
	case x.behind.IsZero():
		x.behind = now
		if x.next > 1 { // of who is new everything is
			p.counts.Gaps++
		}
	}
}

// caughtUp notes that a snapshot has been taken: all up to seq is here.
func (p *peers) caughtUp(now time.Time, x *peer, seq uint64, refused bool) {
	p.counts.TakenSnapshots++
	if x.anew {
		x.next, x.later = 1, nil
	}
	x.wanted, x.anew, x.refused = false, false, refused
	x.take(1, seq+1)
	p.judge(now, x)
}

// wants tells whether a snapshot with this number is of use.
func (x *peer) wants(seq uint64) bool {
	if x.anew && seq+1 < x.next {
		return false // what came since would be lost
	}
	return x.wanted || x.anew || x.refused || seq >= x.next
}

// How long a gap may be open before its snapshot is asked for, for messages that are only
// late; how long it takes to ask again; and the same where the router refused something.
const (
	patience     = 20 * time.Millisecond
	askEvery     = 250 * time.Millisecond
	refusedEvery = 10 * time.Second
)

// due is when to ask the peer for a snapshot, zero if not.
func (x *peer) due() time.Time {
	var at time.Time
	switch {
	case x.wanted:
		at = x.asked.Add(askEvery)
	case !x.behind.IsZero():
		at = x.behind.Add(patience)
		if again := x.asked.Add(askEvery); again.After(at) {
			at = again
		}
	case x.refused:
		at = x.asked.Add(refusedEvery)
	}
	return at
}

// settle calls ask for who is due and lost for who has been silent for too long, and
// returns when to do so again.
func (p *peers) settle(now time.Time, ask, lost func(*peer)) time.Time {
	next := now.Add(p.silence)
	for _, x := range p.all { // in any order: each is asked and lost for itself
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

// want has snapshots asked for of all. anew: as if nothing were known of them.
func (p *peers) want(anew bool) {
	for _, x := range p.all {
		x.wanted = true
		x.anew = x.anew || anew
	}
}

// pieces is a snapshot that is not complete.
type pieces struct {
	seq, lastID uint64
	all         [][]byte
	here        int
	bytes       int
}

// collect takes a piece of a snapshot, and returns all when they are there. The piece
// belongs to it.
func (p *peers) collect(x *peer, m *message, payload []byte) [][]byte {
	s := &x.snapshot
	if s.seq != m.seq || s.lastID != m.lastID || len(s.all) != m.pieces {
		if s.here > 0 && s.seq > m.seq {
			return nil // of an earlier one, and late
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
