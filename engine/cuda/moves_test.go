package cuda_test

import (
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

// holding wraps the interpreter's driver. It delays waits for events of streams without launches until
// release is closed.
type holding struct {
	*vm.Driver
	release chan struct{}

	mu       sync.Mutex
	launches map[cudrv.Stream]bool
	of       map[cudrv.Event]cudrv.Stream
	copies   map[cudrv.Stream]int // number of page copies
	page     int
}

type holdingContext struct {
	cudrv.Context
	d *holding
}

func (d *holding) Open(i int) (cudrv.Context, error) {
	c, err := d.Driver.Open(i)
	return &holdingContext{c, d}, err
}

func (c *holdingContext) Launch(f cudrv.Function, l cudrv.Launch) error {
	c.d.mu.Lock()
	c.d.launches[l.Stream] = true
	c.d.mu.Unlock()
	return c.Context.Launch(f, l)
}

func (c *holdingContext) Record(e cudrv.Event, s cudrv.Stream) error {
	c.d.mu.Lock()
	c.d.of[e] = s
	c.d.mu.Unlock()
	return c.Context.Record(e, s)
}

func (c *holdingContext) copied(s cudrv.Stream, n int) {
	c.d.mu.Lock()
	defer c.d.mu.Unlock()
	if n == c.d.page {
		c.d.copies[s]++
	}
}

func (c *holdingContext) CopyIn(s cudrv.Stream, dst cudrv.Ptr, src []byte) error {
	c.copied(s, len(src))
	return c.Context.CopyIn(s, dst, src)
}

func (c *holdingContext) CopyOut(s cudrv.Stream, dst []byte, src cudrv.Ptr) error {
	c.copied(s, len(dst))
	return c.Context.CopyOut(s, dst, src)
}

func (c *holdingContext) SyncEvent(e cudrv.Event) error {
	c.d.mu.Lock()
	held := !c.d.launches[c.d.of[e]]
	c.d.mu.Unlock()
	if held {
		<-c.d.release
	}
	return c.Context.SyncEvent(e)
}

// decode submits step seq, of one token of one sequence.
func decode(t *testing.T, b engine.Backend, seq uint64, after []engine.MoveID) engine.Ticket {
	t.Helper()
	x := &engine.Batch{Seq: seq, After: after, Rows: []engine.Row{{Start: int32(seq - 1), Tokens: []kv.Token{3}, Sample: true}}}
	if seq == 1 {
		x.Binds = []engine.SlotBind{{Pages: []kv.PageID{0}}}
	}
	ticket, err := b.Submit(x)
	if err != nil {
		t.Fatal(err)
	}
	return ticket
}

// TestMovesDontBlockSteps checks that pages move on separate streams, one for each direction, and that
// independent steps end while moves are pending.
func TestMovesDontBlockSteps(t *testing.T) {
	m, err := model.Open(nanoDir)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	d := &holding{Driver: vm.New(ptxvm.Config{MemoryBytes: 16 << 20}), release: make(chan struct{}),
		launches: map[cudrv.Stream]bool{}, of: map[cudrv.Event]cudrv.Stream{}, copies: map[cudrv.Stream]int{}}
	b, err := cuda.Open(m, cuda.Config{Driver: d, Pages: 8, MaxSlots: 2, MaxRows: 2, MaxTokens: 32})
	if err != nil {
		t.Fatal(err)
	}
	d.page = b.Info().PageBytes
	host, err := b.HostAlloc(2 * d.page)
	if err != nil {
		t.Fatal(err)
	}
	memory := [][]byte{host[:d.page], host[d.page:]}
	seq := uint64(0)
	step := func(after ...engine.MoveID) engine.Ticket { seq++; return decode(t, b, seq, after) }
	step()
	for i, move := range []engine.Move{{From: kv.TierDevice, To: kv.TierHost, Pages: []kv.PageID{4, 5}}, {From: kv.TierHost, To: kv.TierDevice, Pages: []kv.PageID{2, 3}}} {
		move.ID = engine.MoveID(i + 1)
		if err := b.Move(&move, memory); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 {
		ticket := step()
		<-ticket.Done()
		if _, err := ticket.Result(); err != nil {
			t.Fatal(err)
		}
	}
	if moved := b.Moved(nil); len(moved) != 0 {
		t.Errorf("%v ended", moved)
	}
	after := step(1, 2) // the device waits for both moves, the host does not
	close(d.release)
	<-after.Done()
	var moved []engine.Moved
	for len(moved) < 2 {
		<-b.Ready()
		moved = b.Moved(moved)
	}
	for _, x := range moved {
		if x.Err != nil {
			t.Errorf("move %d: %v", x.ID, x.Err)
		}
	}
	b.HostFree(host)
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	for s, n := range d.copies {
		if n != 2 || d.launches[s] {
			t.Errorf("%d pages are copied on a stream that launches kernels: %v", n, d.launches[s])
		}
	}
	if len(d.copies) != 2 {
		t.Errorf("pages are copied on %d streams, want one for each direction", len(d.copies))
	}
}
