package coppice_test

import (
	"sync"

	"github.com/coppice-llm/coppice/engine"
)

// held is a device that stops where the test says: a batch that would make an output longer
// than the limit does not complete, nor do the batches after it, until the limit is raised; or
// they end with engine.ErrClosed when the device is closed. So longer requests stay open as
// long as the test needs.
type held struct {
	engine.Backend
	closed  chan struct{}
	tickets sync.WaitGroup

	mu    sync.Mutex
	limit int
	queue []*heldTicket // batches not let pass yet, in the order of submission
}

// noLimit lets every batch pass.
const noLimit = 1 << 30

// outputs sets the limit, in tokens, for the batches held now and for later ones. At first it
// is 0.
func (h *held) outputs(limit int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.limit = limit
	h.advance()
}

func (h *held) advance() {
	for len(h.queue) > 0 && h.queue[0].longest <= h.limit {
		close(h.queue[0].passed)
		h.queue = h.queue[1:]
	}
}

func (h *held) Submit(b *engine.Batch) (engine.Ticket, error) {
	ticket, err := h.Backend.Submit(b)
	if err != nil {
		return nil, err
	}
	held := &heldTicket{of: ticket, passed: make(chan struct{}), done: make(chan struct{})}
	for i := range b.Rows {
		if r := &b.Rows[i]; r.Sample {
			held.longest = max(held.longest, int(r.SampleIndex)+1)
		}
	}
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

// heldTicket is done when its batch was let pass and ran, or when the device was closed.
type heldTicket struct {
	of           engine.Ticket
	longest      int // length of the longest output after the batch, in tokens
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
