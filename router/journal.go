package router

import (
	"github.com/coppice-llm/coppice/internal/enum"
	"github.com/coppice-llm/coppice/kv"
)

// EventKind says what happened to the reservation of an [Event].
type EventKind uint8

// The kinds of event.
const (
	Reserved   EventKind = iota // it was made, or it is, in a Snapshot
	Progressed                  // its prefill ended, or it is renewed
	Released                    // it ended, however
)

var eventNames = enum.New[EventKind]("router", "event", "reserved", "progressed", "released")

func (k EventKind) String() string { return eventNames.Name(k) }

// Event is what a router tells its replicas about one of its reservations. Numbers
// are totals, never differences, so an event may come twice or late.
type Event struct {
	Replica ReplicaID
	Epoch   uint64
	Seq     uint64 // of the replica's events in its epoch, from 1, without gaps
	Kind    EventKind
	ID      uint64 // of the reservation

	// Reserved and Progressed: tokens computed of the uncached ones, and output.
	ComputedTokens, OutputTokens int

	// Reserved alone.
	Worker         kv.Rank
	PromptTokens   int
	UncachedTokens int
	UnsharedBlocks int
	DecodeOnly     bool // never set
	Untold         bool // as in the Request
	Hashes         []kv.BlockHash

	// Reserved, and Released of what was taken back: the claim on its session, 0 if it has
	// none or claims nothing. Its worker is Worker, or none where Nowhere says so, which is
	// of Released alone. See Claim.
	Session, Stamp uint64
	Nowhere        bool
}

// Snapshot is all that a router has reserved itself. What it knows of sessions is told
// by Claims.
type Snapshot struct {
	Replica ReplicaID
	Epoch   uint64
	Seq     uint64  // of the last event before it
	LastID  uint64  // of the last reservation before it
	Events  []Event // Reserved, without Seq, Session and Stamp
}

// journal keeps the events until they are fetched. Hashes lie in one of two
// arenas, so that what Drain returned stays while the next ones come.
type journal struct {
	cfg    *Config
	seq    uint64
	lost   uint64 // events that nobody fetched
	events []Event
	arena  [2][]kv.BlockHash
	side   int
}

// journalBlocks is how many hashes are kept for each of MaxJournal events: 64 are
// a prompt of 1,024 tokens, and a journal that is drained has a few events.
const journalBlocks = 64

// reserved notes a new reservation, with its claim.
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

// event is the Reserved of a reservation as it is now, without hashes.
func (e *reservation) event(worker kv.Rank) Event {
	return Event{
		Kind: Reserved, ID: e.id, ComputedTokens: e.computed, OutputTokens: e.outputTokens, Worker: worker,
		PromptTokens: e.promptTokens, UncachedTokens: e.uncached, UnsharedBlocks: e.privatePart, Untold: e.untold,
	}
}

func (j *journal) progressed(e *reservation) {
	j.append(Event{Kind: Progressed, ID: e.id, ComputedTokens: e.computed, OutputTokens: e.outputTokens})
}

func (j *journal) released(e *reservation) {
	ev := Event{Kind: Released, ID: e.id}
	if e.unclaimed {
		ev.Session, ev.Stamp, ev.Worker, ev.Nowhere = e.session, e.stamp, e.previous, !e.had
	}
	j.append(ev)
}

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

// drop gives up what nobody fetched; the replicas see it by the numbers and ask
// for a snapshot.
func (j *journal) drop() {
	j.lost += uint64(len(j.events))
	clear(j.events)
	j.events, j.arena[j.side] = j.events[:0], nil
}

// drain appends the events to dst.
func (j *journal) drain(dst []Event) []Event {
	dst = append(dst, j.events...)
	clear(j.events)
	j.events = j.events[:0]
	j.side = 1 - j.side
	j.arena[j.side] = j.arena[j.side][:0]
	return dst
}
