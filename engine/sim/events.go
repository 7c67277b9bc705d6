package sim

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/coppice-llm/coppice/engine"
)

// later returns t + d, or the largest Duration if that overflows.
func later(t, d time.Duration) time.Duration {
	if d > math.MaxInt64-t {
		return math.MaxInt64
	}
	return t + d
}

// ReadyAt returns the time when t completes unless something ends it earlier: virtual time, or
// time since Open. If a caller puts an event on the clock for that time, after Submit, the ticket
// is complete when the event runs. ok is false for a ticket of another backend.
func (b *Backend) ReadyAt(t engine.Ticket) (at time.Duration, ok bool) {
	own, ok := t.(*ticket)
	if !ok || own.backend != b {
		return 0, false
	}
	return own.end, true
}

// arm schedules finish(t) for time t.end; the caller holds b.mu.
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

// now returns the virtual time, or the time since Open.
func (b *Backend) now() time.Duration {
	if b.cfg.Clock != nil {
		return b.cfg.Clock.Now()
	}
	return time.Since(b.born)
}

// finish completes t and all pending tickets that end no later than t. Real-time events may run in
// another order than their tickets end, but a caller that sees a completed ticket may rely on the
// earlier tickets.
func (b *Backend) finish(t *ticket) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if t.over.Load() {
		return
	}
	end := func(x *ticket) {
		b.disarm(x) // no effect on t's own event, which is running
		x.complete(nil)
	}
	var misused error // a caller has changed what it had lent
	b.moving.pending = slices.DeleteFunc(b.moving.pending, func(m *ticket) bool {
		if m.end > t.end {
			return false
		}
		b.disarm(m)
		misused = cmp.Or(misused, m.lent.release())
		b.moving.end(m, m.fail)
		return true
	})
	if misused != nil {
		b.lose(b.sanitizerError(misused))
		return
	}
	for len(b.batches) > 0 && b.batches[0].end <= t.end {
		first := b.batches[0]
		if err := first.lent.release(); err != nil && first.lost == nil {
			first.lost = b.sanitizerError(err)
		}
		if first.lost != nil {
			b.lose(first.lost)
			return
		}
		b.batches = slices.Delete(b.batches, 0, 1)
		end(first)
	}
	if !t.over.Load() {
		panic(fmt.Sprintf("sim: the ticket that ends at %v is not among the pending ones", t.end))
	}
}

// sanitizerError returns the error that ends the device for what the sanitizer found at the end of
// a batch or a move.
func (b *Backend) sanitizerError(err error) *engine.Error {
	return &engine.Error{Backend: b.info.Name, Op: "sanitizer", Err: err}
}

// lose ends the device and all pending tickets with err; the caller holds b.mu.
func (b *Backend) lose(err *engine.Error) {
	b.lost = err
	b.drop(err)
}

// ended returns ErrClosed after Close, else the error that ended the device, or nil; the caller
// holds b.mu.
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

// drop ends all pending tickets with err; the caller holds b.mu.
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

// disarm cancels the call of finish that arm has scheduled for t, if that call has not begun.
func (b *Backend) disarm(t *ticket) {
	if b.cfg.Clock != nil {
		b.cfg.Clock.Cancel(t.event)
	} else if t.timer.Stop() {
		b.timers.Done()
	}
}

// ticket implements engine.Ticket for a batch, and is the entry of a pending move.
type ticket struct {
	backend *Backend
	end     time.Duration // time when the ticket completes, unless the device is lost or closed earlier
	// lost is the error that ends the device when the ticket completes.
	lost *engine.Error
	move engine.MoveID // 0 for a batch
	fail error         // error of the move, if it fails
	lent lent          // what the caller must leave alone; empty unless the mode is Full

	// The event that completes the ticket: event in virtual time, timer in real time.
	event EventID
	timer *time.Timer

	res  engine.Result
	err  error
	over atomic.Bool   // set after err, never unset
	done chan struct{} // made by the first Done; guarded by backend.mu
}

// Done implements engine.Ticket.
func (t *ticket) Done() <-chan struct{} {
	t.backend.mu.Lock()
	defer t.backend.mu.Unlock()
	if t.done == nil {
		t.done = make(chan struct{})
		if t.over.Load() {
			close(t.done)
		}
	}
	return t.done
}

// Result implements engine.Ticket.
func (t *ticket) Result() (*engine.Result, error) {
	switch {
	case !t.over.Load():
		return nil, engine.ErrPending
	case t.err != nil:
		return nil, t.err
	default:
		return &t.res, nil
	}
}

// complete ends the ticket; the caller holds backend.mu.
func (t *ticket) complete(err error) {
	if t.over.Load() {
		panic("sim: a ticket ends twice")
	}
	t.err = err
	t.over.Store(true)
	if t.done != nil {
		close(t.done)
	}
}
