package router

import (
	"fmt"

	"github.com/coppice-llm/coppice/kv"
)

// EventKind tells what happened to the reservation of an [Event].
type EventKind uint8

// The kinds of event.
const (
	Reserved   EventKind = iota // it was made, or it is, in a Snapshot
	Progressed                  // its prefill ended, or it is renewed
	Released                    // it ended, however
)

var eventNames = [...]string{"reserved", "progressed", "released"}

func (k EventKind) String() string {
	if int(k) < len(eventNames) {
		return eventNames[k]
	}
	return fmt.Sprintf("event(%d)", uint8(k))
}

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
	DecodeOnly     bool
	Untold         bool // as in the Request
	Hashes         []kv.BlockHash

	// Reserved, and Released of what was taken back: the claim on its session, 0 if it has
	// none or claims nothing. Its worker is Worker, or none where Nowhere says so, which is
	// of Released alone. See Claim.
	Session, Stamp uint64
	Nowhere        bool
}

// journal keeps the events until they are fetched. Hashes lie in one of two
// arenas, so that what Drain returned stays while the next ones come.
type journal struct {
	seq    uint64
	events []Event
	arena  [2][]kv.BlockHash
	side   int
}

// journalBlocks is how many hashes are kept for each of MaxJournal events: 64 are
// a prompt of 1,024 tokens, and a journal that is drained has a few events.
const journalBlocks = 64

func (r *Router) replicated() bool { return r.cfg.Replica != 0 }

func (r *Router) journalReserved(e *reservation, hashes []kv.BlockHash) {
	if !r.replicated() {
		return
	}
	j := &r.journal
	if len(j.arena[j.side])+len(hashes) > r.cfg.MaxJournal*journalBlocks {
		r.loseJournal()
	}
	from := len(j.arena[j.side])
	j.arena[j.side] = append(j.arena[j.side], hashes...)
	ev := r.eventOf(e)
	ev.Session, ev.Stamp = e.session, e.stamp
	ev.Hashes = j.arena[j.side][from:len(j.arena[j.side]):len(j.arena[j.side])]
	r.append(ev)
}

func (r *Router) eventOf(e *reservation) Event {
	return Event{
		Kind: Reserved, ID: e.id, ComputedTokens: e.computed, OutputTokens: e.outputTokens, Worker: r.workers[e.slot].id,
		PromptTokens: e.promptTokens, UncachedTokens: e.uncached, UnsharedBlocks: e.privatePart, DecodeOnly: e.decodeOnly,
		Untold: e.untold,
	}
}

func (r *Router) journalProgress(e *reservation) {
	if r.replicated() {
		r.append(Event{Kind: Progressed, ID: e.id, ComputedTokens: e.computed, OutputTokens: e.outputTokens})
	}
}

func (r *Router) journalReleased(e *reservation) {
	if !r.replicated() {
		return
	}
	ev := Event{Kind: Released, ID: e.id}
	if e.unclaimed {
		ev.Session, ev.Stamp, ev.Worker, ev.Nowhere = e.session, e.stamp, e.previous, !e.had
	}
	r.append(ev)
}

func (r *Router) append(ev Event) {
	j := &r.journal
	if len(j.events) >= r.cfg.MaxJournal {
		hashes := ev.Hashes
		r.loseJournal()
		j.arena[j.side] = append(j.arena[j.side], hashes...)
	}
	j.seq++
	ev.Replica, ev.Epoch, ev.Seq = r.cfg.Replica, r.cfg.Epoch, j.seq
	j.events = append(j.events, ev)
	r.metrics.Journal++
}

// loseJournal drops what nobody fetched; the replicas see it by the numbers and ask
// for a snapshot.
func (r *Router) loseJournal() {
	j := &r.journal
	r.metrics.JournalLost += uint64(len(j.events))
	clear(j.events)
	j.events, j.arena[j.side] = j.events[:0], nil
}

// Drain appends the events since the last Drain to dst, for all replicas. Their
// Hashes are valid until the next Drain.
func (r *Router) Drain(dst []Event) []Event {
	j := &r.journal
	dst = append(dst, j.events...)
	clear(j.events)
	j.events = j.events[:0]
	j.side = 1 - j.side
	j.arena[j.side] = j.arena[j.side][:0]
	return dst
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

// Snapshot is for a replica that comes late or missed events. It belongs to the
// caller. It costs O(reservations and their blocks).
func (r *Router) Snapshot() Snapshot {
	s := Snapshot{Replica: r.cfg.Replica, Epoch: r.cfg.Epoch, Seq: r.journal.seq, LastID: r.lastID}
	for at := r.ages.head; at != none; at = r.slab[at].links[byAge].next {
		e := &r.slab[at]
		if e.peer != ownPeer {
			continue
		}
		ev := r.eventOf(e)
		ev.Replica, ev.Epoch, ev.Hashes = r.cfg.Replica, r.cfg.Epoch, r.tree.prefix(e.end)
		s.Events = append(s.Events, ev)
	}
	return s
}

// prefix are the hashes from the root to the end of a node.
func (t *tree) prefix(end int32) []kv.BlockHash {
	n := 0
	for at := end; at != rootNode; at = t.nodes[at].parent {
		n += len(t.nodes[at].run)
	}
	hashes := make([]kv.BlockHash, n)
	for at := end; at != rootNode; at = t.nodes[at].parent {
		n -= copy(hashes[n-len(t.nodes[at].run):], t.nodes[at].run)
	}
	return hashes
}
