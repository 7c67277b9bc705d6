package replica

import (
	"cmp"
	"slices"

	"github.com/coppice-llm/coppice/router"
)

// ledger is what this gateway has told that it has reserved, from the same events that the
// others hear. Snapshots are made of it: the router's own would hold the dispatcher's mutex
// for 2 ms for each thousand reservations.
type ledger struct {
	open   map[uint64]*router.Event // Reserved, with totals of now
	free   []*router.Event
	named  int    // hashes in open
	seq    uint64 // of the last event
	lastID uint64
	torn   bool // events were lost before they came here: it must be written anew

	shortened uint64
}

// mostNamed bounds the blocks that are named in the ledger, and so in a snapshot: beyond
// them, blocks are only counted. 16 MiB.
const mostNamed = 2 << 20

// mostFree bounds the entries that are kept to be used again.
const mostFree = 256

// note takes an event.
func (l *ledger) note(ev *router.Event) {
	l.torn = l.torn || ev.Seq != l.seq+1
	l.seq = ev.Seq
	switch e := l.open[ev.ID]; {
	case ev.Kind == router.Reserved:
		l.lastID = max(l.lastID, ev.ID)
		l.put(ev)
	case e == nil: // of before it was torn
	case ev.Kind == router.Progressed:
		e.ComputedTokens, e.OutputTokens = ev.ComputedTokens, ev.OutputTokens
	default:
		l.named -= len(e.Hashes)
		delete(l.open, ev.ID)
		if len(l.free) < mostFree {
			l.free = append(l.free, e)
		}
	}
}

// put keeps a copy of a reservation.
func (l *ledger) put(ev *router.Event) {
	e := &router.Event{}
	if n := len(l.free); n > 0 {
		e = l.free[n-1]
		l.free = l.free[:n-1]
	}
	into := e.Hashes[:0]
	*e = *ev
	e.Session, e.Stamp = 0, 0 // the router's claims tell it
	if most := mostNamed - l.named; len(e.Hashes) > most {
		l.shortened++
		shorten(e, 0)
	}
	e.Hashes = append(into, e.Hashes...)
	l.named += len(e.Hashes)
	l.open[e.ID] = e
}

// rewrite begins anew with what the router says.
func (l *ledger) rewrite(s *router.Snapshot) {
	*l = ledger{open: map[uint64]*router.Event{}, seq: s.Seq, lastID: s.LastID, shortened: l.shortened}
	for i := range s.Events {
		l.put(&s.Events[i])
	}
}

// snapshot is all of it, the oldest first. Hashes belong to the ledger, and are valid until
// the next note.
func (l *ledger) snapshot(dst []router.Event) []router.Event {
	for _, e := range l.open {
		dst = append(dst, *e)
	}
	slices.SortFunc(dst, func(a, b router.Event) int { return cmp.Compare(a.ID, b.ID) })
	return dst
}
