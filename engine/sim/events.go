package sim

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/coppice-llm/coppice/engine"
)

// now is the time since Open, or the virtual time.
func (b *Backend) now() time.Duration {
	if b.cfg.Clock != nil {
		return b.cfg.Clock.Now()
	}
	return time.Since(b.born)
}

// later is t + d, or the end of time.
func later(t, d time.Duration) time.Duration {
	if d > math.MaxInt64-t {
		return math.MaxInt64
	}
	return t + d
}

// ReadyAt is when t, a ticket of this backend, completes if nothing ends it
// before: the virtual time, or the time since Open. An event that is put on the
// clock for that time after Submit finds it complete. ok is false for a ticket
// that is not of this backend.
func (b *Backend) ReadyAt(t engine.Ticket) (at time.Duration, ok bool) {
	own, ok := t.(*ticket)
	if !ok || own.backend != b {
		return 0, false
	}
	return own.end, true
}

// arm has finish called when the ticket ends; the caller holds b.mu.
func (b *Backend) arm(t *ticket) {
	if b.cfg.Clock != nil {
		t.event = b.cfg.Clock.At(t.end, func() { b.finish(t) })
		return
	}
	b.timers.Add(1)
	t.timer = time.AfterFunc(t.end-b.now(), func() {
		defer b.timers.Done()
		b.finish(t)
	})
}

// disarm takes the event back, if it has not begun.
func (b *Backend) disarm(t *ticket) {
	if b.cfg.Clock != nil {
		b.cfg.Clock.Cancel(t.event)
	} else if t.timer.Stop() {
		b.timers.Done()
	}
}

// finish completes t at its end, and all tickets that end no later: real-time events may
// come in another order, and a caller that has seen a ticket may rely on those before it.
func (b *Backend) finish(t *ticket) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if t.over.Load() {
		return
	}
	end := func(x *ticket) {
		b.disarm(x) // does nothing to t's event, which runs
		x.complete(nil)
	}
	b.moving.pending = slices.DeleteFunc(b.moving.pending, func(m *ticket) bool {
		if m.end > t.end {
			return false
		}
		b.disarm(m)
		b.moving.end(m, m.fail)
		return true
	})
	for len(b.batches) > 0 && b.batches[0].end <= t.end {
		first := b.batches[0]
		if first.lost != nil {
			b.lost = first.lost
			b.drop(first.lost)
			return
		}
		b.batches = slices.Delete(b.batches, 0, 1)
		end(first)
	}
	if !t.over.Load() {
		panic(fmt.Sprintf("sim: the ticket that ends at %v is not among the pending ones", t.end))
	}
}

// drop ends everything that is pending with err; the caller holds b.mu.
func (b *Backend) drop(err error) {
	for _, t := range b.batches {
		b.disarm(t)
		t.complete(err)
	}
	for _, t := range b.moving.pending {
		b.disarm(t)
		b.moving.end(t, err)
	}
	b.batches, b.moving.pending = b.batches[:0], b.moving.pending[:0]
}

// ended is the error of calls that come too late; the caller holds b.mu.
func (b *Backend) ended() error {
	switch {
	case b.closed:
		return engine.ErrClosed
	case b.lost != nil:
		return b.lost
	default:
		return nil
	}
}

// Close implements engine.Backend.
func (b *Backend) Close() error {
	b.mu.Lock()
	if !b.closed {
		b.closed = true
		b.drop(engine.ErrClosed)
	}
	b.mu.Unlock()
	b.timers.Wait()
	return nil
}
