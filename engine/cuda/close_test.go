package cuda_test

import (
	"errors"
	"runtime"
	"sync"
	"testing"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/engine/cuda"
	"github.com/coppice-llm/coppice/engine/cuda/cudrv"
	"github.com/coppice-llm/coppice/engine/cuda/cudrv/vm"
	"github.com/coppice-llm/coppice/engine/cuda/ptxvm"
	"github.com/coppice-llm/coppice/engine/model"
	"github.com/coppice-llm/coppice/kv"
)

// held is a device whose first wait for an event ends when released is closed. It counts events that work
// is marked with, and waits for them.
type held struct {
	*vm.Driver
	released chan struct{}
	recorded chan struct{}

	mu     sync.Mutex
	synced int
	atEnd  int // synced at Close
}

type heldContext struct {
	cudrv.Context
	h *held
}

func (h *held) Open(i int) (cudrv.Context, error) {
	c, err := h.Driver.Open(i)
	return &heldContext{c, h}, err
}

func (c *heldContext) Record(e cudrv.Event, s cudrv.Stream) error {
	err := c.Context.Record(e, s)
	c.h.recorded <- struct{}{}
	return err
}

func (c *heldContext) SyncEvent(e cudrv.Event) error {
	<-c.h.released
	c.h.mu.Lock()
	c.h.synced++
	c.h.mu.Unlock()
	return c.Context.SyncEvent(e)
}

func (c *heldContext) Close() error {
	c.h.mu.Lock()
	c.h.atEnd = c.h.synced
	c.h.mu.Unlock()
	return c.Context.Close()
}

// TestCloseWaits checks that Close waits for all work on the device before it releases the context: until
// then the device uses host memory.
func TestCloseWaits(t *testing.T) {
	m, err := model.Open(nanoDir)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	h := &held{Driver: vm.New(ptxvm.Config{MemoryBytes: 16 << 20}), released: make(chan struct{}), recorded: make(chan struct{}, 8)}
	b, err := cuda.Open(m, cuda.Config{Driver: h, Pages: 8, MaxSlots: 2, MaxRows: 2, MaxTokens: 64})
	if err != nil {
		t.Fatal(err)
	}
	var tickets []engine.Ticket
	for i := range uint64(2) {
		ticket, err := b.Submit(&engine.Batch{Seq: i + 1, Binds: []engine.SlotBind{{Slot: engine.Slot(i), Pages: []kv.PageID{kv.PageID(i)}}},
			Rows: []engine.Row{{Slot: engine.Slot(i), Tokens: make([]kv.Token, 4), Sample: true}}})
		if err != nil {
			t.Fatal(err)
		}
		tickets = append(tickets, ticket)
		<-h.recorded
	}
	closed := make(chan error)
	go func() { closed <- b.Close() }()
	for !b.Aborted() {
		runtime.Gosched()
	}
	close(h.released)
	if err := <-closed; err != nil || h.atEnd != 2 {
		t.Errorf("the context is released after %d waits, want 2 (%v)", h.atEnd, err)
	}
	for _, ticket := range tickets {
		<-ticket.Done()
		if _, err := ticket.Result(); !errors.Is(err, engine.ErrClosed) {
			t.Errorf("%v, want: %v", err, engine.ErrClosed)
		}
	}
}
