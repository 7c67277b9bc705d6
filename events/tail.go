package events

import (
	"errors"
	"iter"

	"github.com/coppice-llm/coppice/kv"
)

// Tail publishes a numbered stream of events of which its source keeps the last keep, such
// as a node's Events: open yields it from a number on. A stream that ends with lagged was
// read too slowly; it is opened again behind what came of it, and nothing is lost if that
// is kept still. Else, which shows by lagged before any event, a gap is announced and the
// stream gone on with where it is kept. Tail returns when a stream ends otherwise: its error,
// nil if there is none.
//
// keep must not be more than the source keeps, or the place to go on from may be missed for
// good; if it is less, that takes longer to find. One goroutine at a time may call Tail and
// Publish.
func (p *Publisher) Tail(open func(from uint64) iter.Seq2[kv.Event, error], lagged error, keep int) error {
	for from, due, gap := uint64(0), uint64(0), false; ; {
		came := false
		var end error
		for ev, err := range open(from) {
			if err != nil {
				end = err
				break
			}
			if gap {
				p.missed(ev.Seq - due)
				gap = false
			}
			came, due = true, ev.Seq+1
			p.Publish([]kv.Event{ev})
		}
		switch {
		case !errors.Is(end, lagged):
			return end
		case came:
			from = due
			continue
		case !gap:
			p.Gap()
			gap = true
		}
		// What is kept begins behind from, so it ends behind from+keep: that is not too far.
		from += uint64(max(keep, 1))
	}
}

// missed counts events that Publish has not seen.
func (p *Publisher) missed(n uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.metrics.LostEvents += n
}
