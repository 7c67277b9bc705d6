package replica

import (
	"cmp"
	"slices"

	"github.com/coppice-llm/coppice/router"
)

// ledger holds this router's reservations, built from the events that are published. Snapshots
// for other routers are made from it: the router itself would take 2 ms per thousand
// reservations for one, and all requests would wait meanwhile for the dispatcher's mutex.
type ledger struct {
	open   map[uint64]*router.Event // the Reserved events of open reservations, with current totals
	free   []*router.Event          // entries for reuse
	named  int                      // number of hashes in open
	seq    uint64                   // sequence number of the last event
	lastID uint64
	torn   bool // the router's journal has lost events, so the ledger must be rewritten

	shortened uint64 // number of reservations of which not all hashes were kept
}

// mostNamed bounds the hashes in the ledger, and so in a snapshot. The blocks of a reservation
// that does not fit are only counted. 2 Mi hashes of 8 bytes are 16 MiB.
const mostNamed = 2 << 20

// mostFree bounds the entries kept for reuse.
const mostFree = 256

// note applies event ev of this router to the ledger. If events before ev are missing, the
// ledger is torn.
func (l *ledger) note(ev *router.Event) {
	l.torn = l.torn || ev.Seq != l.seq+1
	l.seq = ev.Seq
	switch e := l.open[ev.ID]; {
	case ev.Kind == router.Reserved:
		l.lastID = max(l.lastID, ev.ID)
		l.put(ev)
	case e == nil: // reserved before the ledger was torn
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

// put stores a copy of ev, the Reserved event of a reservation.
func (l *ledger) put(ev *router.Event) {
	e := &router.Event{}
	if n := len(l.free); n > 0 {
		e = l.free[n-1]
		l.free = l.free[:n-1]
	}
	into := e.Hashes[:0]
	*e = *ev
	e.Session, e.Stamp = 0, 0 // sessions are in the router's claims
	if most := mostNamed - l.named; len(e.Hashes) > most {
		l.shortened++
		shorten(e, 0)
	}
	e.Hashes = append(into, e.Hashes...)
	l.named += len(e.Hashes)
	l.open[e.ID] = e
}

// rewrite replaces the contents of the ledger by a snapshot of the router.
func (l *ledger) rewrite(s *router.Snapshot) {
	*l = ledger{open: map[uint64]*router.Event{}, seq: s.Seq, lastID: s.LastID, shortened: l.shortened}
	for i := range s.Events {
		l.put(&s.Events[i])
	}
}

// snapshot appends all reservations to dst, oldest first. Their hashes belong to the ledger and
// are valid until the next note.
func (l *ledger) snapshot(dst []router.Event) []router.Event {
	for _, e := range l.open {
		dst = append(dst, *e)
	}
	slices.SortFunc(dst, func(a, b router.Event) int { return cmp.Compare(a.ID, b.ID) })
	return dst
}
