package router

import (
	"github.com/coppice-llm/coppice/internal/enum"
	"github.com/coppice-llm/coppice/kv"
)

// EventKind is the change of a reservation that an [Event] reports.
type EventKind uint8

// The kinds of event.
const (
	Reserved   EventKind = iota // the reservation was made; in a Snapshot, it exists
	Progressed                  // its prefill ended, or progress renewed it
	Released                    // it ended, in whatever way
)

var eventNames = enum.New[EventKind]("router", "event", "reserved", "progressed", "released")

func (k EventKind) String() string { return eventNames.Name(k) }

// Event reports a change of one reservation to replicas. Its numbers are totals, not
// differences, so an event may arrive twice, late or out of order.
type Event struct {
	Replica ReplicaID
	Epoch   uint64
	// Seq is the number of the event in its replica's epoch: 1, 2, … without gaps. If some are
	// missing, ask for a Snapshot.
	Seq  uint64
	Kind EventKind
	ID   uint64 // of the reservation

	// Of Reserved and Progressed: computed tokens of UncachedTokens, and output tokens.
	ComputedTokens, OutputTokens int

	// Of Reserved only.
	Worker         kv.Rank
	PromptTokens   int
	UncachedTokens int
	UnsharedBlocks int
	Untold         bool // as in the Request
	Hashes         []kv.BlockHash

	// Of Reserved, and of Released after a rollback: the claim on the session, 0 without one.
	// The claimed worker is Worker, or none if Nowhere is set (Released only). See Claim.
	Session, Stamp uint64
	Nowhere        bool
}

// Snapshot has all reservations that a router made itself. Sessions are not in it;
// Claims returns them.
type Snapshot struct {
	Replica ReplicaID
	Epoch   uint64
	Seq     uint64  // of the last event before the snapshot
	LastID  uint64  // of the last reservation made before the snapshot
	Events  []Event // Reserved, without Seq, Session and Stamp
}

// journal keeps events until Drain fetches them. Hashes stand in one of two arenas,
// which take turns: the events that Drain returned stay valid while the next ones are
// written.
type journal struct {
	cfg    *Config
	seq    uint64
	lost   uint64 // events dropped before a Drain
	events []Event
	arena  [2][]kv.BlockHash
	side   int // of arena, where new hashes go
}

// journalBlocks sizes an arena: it has room for journalBlocks hashes for each of MaxJournal
// events. 64 blocks of 16 tokens are a prompt of 1,024 tokens. A prompt may have more, because a
// journal that is drained regularly has only a few events.
const journalBlocks = 64

// reserved appends the Reserved event of a new reservation on worker, with a copy of the
// prompt's hashes and with the reservation's claim on its session. If the arena has no room for
// the hashes, all earlier events are dropped, and replicas ask for a snapshot.
func (j *journal) reserved(e *reservation, worker kv.Rank, hashes []kv.BlockHash) {
	if j.cfg.Replica == 0 {
		return
	}
	if len(j.arena[j.side])+len(hashes) > j.cfg.MaxJournal*journalBlocks {
		j.drop()
	}
	from := len(j.arena[j.side])
	j.arena[j.side] = append(j.arena[j.side], hashes...)
	ev := e.event(worker)
	ev.Session, ev.Stamp = e.session, e.stamp
	ev.Hashes = j.arena[j.side][from:len(j.arena[j.side]):len(j.arena[j.side])]
	j.append(ev)
}

// event returns the Reserved event of a reservation in its present state, without
// hashes.
func (e *reservation) event(worker kv.Rank) Event {
	return Event{
		Kind: Reserved, ID: e.id, ComputedTokens: e.computed, OutputTokens: e.outputTokens, Worker: worker,
		PromptTokens: e.promptTokens, UncachedTokens: e.uncached, UnsharedBlocks: e.privatePart, Untold: e.untold,
	}
}

// progressed appends the event of a renewal or of a first token.
func (j *journal) progressed(e *reservation) {
	j.append(Event{Kind: Progressed, ID: e.id, ComputedTokens: e.computed, OutputTokens: e.outputTokens})
}

// released appends the Released event of a reservation that has ended. If the reservation was
// rolled back, the event carries the claim that returns the session to its previous worker.
func (j *journal) released(e *reservation) {
	ev := Event{Kind: Released, ID: e.id}
	if e.unclaimed {
		ev.Session, ev.Stamp, ev.Worker, ev.Nowhere = e.session, e.stamp, e.previous, !e.hadPrevious
	}
	j.append(ev)
}

// append gives ev the next sequence number and adds it. If MaxJournal events are there already,
// all of them are dropped first, and the hashes of ev are copied to the new arena.
func (j *journal) append(ev Event) {
	if j.cfg.Replica == 0 {
		return
	}
	if len(j.events) >= j.cfg.MaxJournal {
		hashes := ev.Hashes
		j.drop()
		j.arena[j.side] = append(j.arena[j.side], hashes...)
	}
	j.seq++
	ev.Replica, ev.Epoch, ev.Seq = j.cfg.Replica, j.cfg.Epoch, j.seq
	j.events = append(j.events, ev)
}

// drop discards all events that Drain has not fetched. Replicas notice the gap in Event.Seq and
// ask for a snapshot.
func (j *journal) drop() {
	j.lost += uint64(len(j.events))
	clear(j.events)
	j.events, j.arena[j.side] = j.events[:0], nil
}

// drain appends the events to dst and switches arenas.
func (j *journal) drain(dst []Event) []Event {
	dst = append(dst, j.events...)
	clear(j.events)
	j.events = j.events[:0]
	j.side = 1 - j.side
	j.arena[j.side] = j.arena[j.side][:0]
	return dst
}
