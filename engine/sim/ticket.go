package sim

import (
	"sync/atomic"
	"time"

	"github.com/coppice-llm/coppice/engine"
)

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
