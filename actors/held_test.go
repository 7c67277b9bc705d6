package actors

import (
	"sync"
	"testing"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/engine/cpu"
)

// held is a device that stops where the test says: a batch that the rule does not let pass
// completes only under a later rule, or ends with engine.ErrClosed when the device is closed.
// So requests stay open in the phase that the test has brought them to.
type held struct {
	engine.Backend
	closed  chan struct{}
	tickets sync.WaitGroup

	mu    sync.Mutex
	pass  rule
	queue []*heldTicket // batches not let pass yet, in the order of submission
}

// rule reports whether the next batch may complete. A batch that may not blocks all later ones
// and is offered again to the next rule.
type rule func(b *engine.Batch) bool

// none holds all batches that have not passed yet.
func none(*engine.Batch) bool { return false }

// all lets every batch pass.
func all(*engine.Batch) bool { return true }

// steps lets n batches pass.
func steps(n int) rule {
	return func(*engine.Batch) bool {
		n--
		return n >= 0
	}
}

// first lets batches pass up to the one that samples the first token of the n-th output,
// and holds all batches after it.
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

// short lets batches pass until an output would grow beyond n tokens: no request with a larger
// limit ends.
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

// hold opens a device that holds every batch until let sets another rule.
func hold(t *testing.T, cfg cpu.Config) *held {
	t.Helper()
	return &held{Backend: backend(t, cfg), closed: make(chan struct{}), pass: none}
}

// let sets the rule for the batches held now and for later ones.
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

// heldTicket is done when its batch was let pass and ran, or when the device was closed.
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
