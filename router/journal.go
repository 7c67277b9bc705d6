package router

import (
	"github.com/coppice-llm/coppice/internal/enum"
	"github.com/coppice-llm/coppice/kv"
)

// EventKind is the change of a reservation that an [Event] reports.
type EventKind uint8

// The kinds of event.
const (
	Reserved   EventKind = iota // it was made; in a Snapshot, it exists
	Progressed                  // its prefill ended, or it was renewed
	Released                    // it ended, in whatever way
)

var eventNames = enum.New[EventKind]("router", "event", "reserved", "progressed", "released")

func (k EventKind) String() string { return eventNames.Name(k) }

// Event reports a change of one reservation to replicas. Its numbers are totals, not
// differences, so an event may arrive twice, late or out of order.
type Event struct {
	Replica ReplicaID
	Epoch   uint64
	Seq     uint64 // number of the event in its replica's epoch: 1, 2, … without gaps
	Kind    EventKind
	ID      uint64 // of the reservation

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
	Seq     uint64  // of the last event before it
	LastID  uint64  // of the last reservation before it
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

// journalBlocks is the number of hashes kept per event of MaxJournal. 64 blocks are a
// prompt of 1,024 tokens; a journal that is drained regularly has only a few events.
const journalBlocks = 64

// reserved appends the event of a new reservation, with its claim. If the arena is
// full, all events are dropped, and replicas ask for a snapshot.
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

// released appends the event of an end. After a rollback it carries the later claim.
func (j *journal) released(e *reservation) {
	ev := Event{Kind: Released, ID: e.id}
	if e.unclaimed {
		ev.Session, ev.Stamp, ev.Worker, ev.Nowhere = e.session, e.stamp, e.previous, !e.hadPrevious
	}
	j.append(ev)
}

// append numbers an event and adds it. At MaxJournal events all are dropped, and the
// new one's hashes are copied to the fresh arena.
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

// drop discards the events that were not fetched. Replicas notice by the numbers and
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
