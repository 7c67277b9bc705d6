package actors

import (
	"sync"
	"testing"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/engine/cpu"
)

// held is a device that stands still where the test says: a batch that is not let
// pass does not complete until it is, or ends with engine.ErrClosed when the device
// is closed. So requests stay open, and in the phase that they were brought to,
// however long what the test does meanwhile takes.
type held struct {
	engine.Backend
	closed  chan struct{}
	tickets sync.WaitGroup

	mu    sync.Mutex
	pass  rule
	queue []*heldTicket // not let pass yet, in the order of submission
}

// rule tells whether the next batch may complete. One that may not holds up those
// behind it and is asked for again under the next rule.
type rule func(b *engine.Batch) bool

// none holds all that was not let pass before.
func none(*engine.Batch) bool { return false }

// all lets the device run freely.
func all(*engine.Batch) bool { return true }

// steps lets n batches pass.
func steps(n int) rule {
	return func(*engine.Batch) bool {
		n--
		return n >= 0
	}
}

// first holds what comes after the batch that samples the n-th of first tokens: n
// outputs have begun then.
func first(n int) rule {
	return func(b *engine.Batch) bool {
		if n <= 0 {
			return false
		}
		for i := range b.Rows {
			if b.Rows[i].Sample && b.Rows[i].SampleIndex == 0 {
				n--
			}
		}
		return true
	}
}

// short lets the device run until an output would get longer than n tokens: none
// with a larger limit reaches it.
func short(n int) rule {
	return func(b *engine.Batch) bool {
		for i := range b.Rows {
			if b.Rows[i].Sample && int(b.Rows[i].SampleIndex) >= n {
				return false
			}
		}
		return true
	}
}

// hold opens a device that holds every batch until let says otherwise.
func hold(t *testing.T, cfg cpu.Config) *held {
	t.Helper()
	return &held{Backend: backend(t, cfg), closed: make(chan struct{}), pass: none}
}

// let sets the rule for the batches that are held now and for those to come.
func (h *held) let(pass rule) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.pass = pass
	h.advance()
}

func (h *held) advance() {
	for len(h.queue) > 0 && h.pass(h.queue[0].batch) {
		close(h.queue[0].passed)
		h.queue = h.queue[1:]
	}
}

func (h *held) Submit(b *engine.Batch) (engine.Ticket, error) {
	ticket, err := h.Backend.Submit(b)
	if err != nil {
		return nil, err
	}
	held := &heldTicket{batch: b, of: ticket, passed: make(chan struct{}), done: make(chan struct{})}
	h.tickets.Go(func() { held.wait(h.closed) })
	h.mu.Lock()
	defer h.mu.Unlock()
	h.queue = append(h.queue, held)
	h.advance()
	return held, nil
}

func (h *held) Close() error {
	close(h.closed)
	h.tickets.Wait()
	return h.Backend.Close()
}

// heldTicket is done when its batch was let pass and ran, or the device is closed.
type heldTicket struct {
	batch        *engine.Batch
	of           engine.Ticket
	passed, done chan struct{}
	result       *engine.Result // result and err are written before done is closed
	err          error
}

func (h *heldTicket) wait(closed <-chan struct{}) {
	defer close(h.done)
	select {
	case <-h.passed:
		<-h.of.Done()
		h.result, h.err = h.of.Result()
	case <-closed:
		h.err = engine.ErrClosed
	}
}

func (h *heldTicket) Done() <-chan struct{} { return h.done }

func (h *heldTicket) Result() (*engine.Result, error) {
	select {
	case <-h.done:
		return h.result, h.err
	default:
		return nil, engine.ErrPending
	}
}
