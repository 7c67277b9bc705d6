package cuda_test

import (
	"errors"
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

// faulty is the interpreter's driver, of which call number failAt fails.
type faulty struct {
	*vm.Driver
	failAt, calls int
	opened        *faultyContext
}

// faultyContext counts the calls that put work on a stream, wait for it, or take
// memory. After the one that failed all fail, as on a lost device.
type faultyContext struct {
	*vm.Context
	f      *faulty
	mu     sync.Mutex // the backend waits for events on a goroutine of its own
	err    error
	closed int
}

func (f *faulty) Open(int) (cudrv.Context, error) {
	f.opened = &faultyContext{Context: vm.NewContext(ptxvm.Config{MemoryBytes: 64 << 20}), f: f}
	return f.opened, nil
}

func (c *faultyContext) fails(call string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.f.calls++
	if c.err == nil && c.f.calls == c.f.failAt {
		c.err = &cudrv.Error{Call: call, Code: cudrv.CodeLaunchFailed, Err: errors.New("planted")}
	}
	return c.err
}

func (c *faultyContext) Alloc(n int) (cudrv.Ptr, error) {
	if err := c.fails("cuMemAlloc"); err != nil {
		return 0, err
	}
	return c.Context.Alloc(n)
}

func (c *faultyContext) HostAlloc(n int) ([]byte, error) {
	if err := c.fails("cuMemHostAlloc"); err != nil {
		return nil, err
	}
	return c.Context.HostAlloc(n)
}

func (c *faultyContext) NewEvent() (cudrv.Event, error) {
	if err := c.fails("cuEventCreate"); err != nil {
		return 0, err
	}
	return c.Context.NewEvent()
}

func (c *faultyContext) Launch(f cudrv.Function, l cudrv.Launch) error {
	if err := c.fails("cuLaunchKernel"); err != nil {
		return err
	}
	return c.Context.Launch(f, l)
}

func (c *faultyContext) CopyIn(s cudrv.Stream, dst cudrv.Ptr, src []byte) error {
	if err := c.fails("cuMemcpyHtoDAsync"); err != nil {
		return err
	}
	return c.Context.CopyIn(s, dst, src)
}

func (c *faultyContext) CopyOut(s cudrv.Stream, dst []byte, src cudrv.Ptr) error {
	if err := c.fails("cuMemcpyDtoHAsync"); err != nil {
		return err
	}
	return c.Context.CopyOut(s, dst, src)
}

func (c *faultyContext) Record(e cudrv.Event, s cudrv.Stream) error {
	if err := c.fails("cuEventRecord"); err != nil {
		return err
	}
	return c.Context.Record(e, s)
}

func (c *faultyContext) SyncEvent(e cudrv.Event) error {
	if err := c.fails("cuEventSynchronize"); err != nil {
		return err
	}
	return c.Context.SyncEvent(e)
}

func (c *faultyContext) Close() error {
	c.closed++
	return c.Context.Close()
}

// steps runs a prompt and some tokens, two batches at a time, and returns how many
// tickets ended well and the first error.
func steps(b engine.Backend) (done int, err error) {
	var tickets []engine.Ticket
	wait := func() error {
		t := tickets[0]
		tickets = tickets[1:]
		<-t.Done()
		_, e := t.Result()
		if e == nil {
			done++
		}
		return e
	}
	note := func(e error) {
		if err == nil {
			err = e
		}
	}
	for i := range int32(4) {
		row := engine.Row{Start: 19 + i, Deferred: true, Pages: []kv.PageID{3, 1}, Sample: true, SampleIndex: i}
		batch := &engine.Batch{Seq: uint64(i + 1)}
		if i == 0 {
			row.Start, row.Deferred, row.Tokens = 0, false, make([]kv.Token, 20)
			batch.Binds = []engine.SlotBind{{Sampling: engine.SamplingParams{Temperature: 1, RepetitionPenalty: 1.1}}}
		}
		batch.Rows = []engine.Row{row}
		t, e := b.Submit(batch)
		if e != nil {
			note(e)
			break
		}
		if tickets = append(tickets, t); len(tickets) == 2 {
			note(wait())
		}
	}
	for len(tickets) > 0 {
		note(wait())
	}
	return done, err
}

// TestFailingDriver: whichever call of the driver fails, opening fails and closes
// the context, or each ticket ends, the error names the call, later submissions
// give the same error, and Close returns.
func TestFailingDriver(t *testing.T) {
	m, err := model.Open(nanoDir)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	open := func(f *faulty) (*cuda.Backend, error) {
		return cuda.Open(m, cuda.Config{Driver: f, Pages: 8, MaxSlots: 2, MaxRows: 2, MaxTokens: 64, MaxInflight: 2})
	}
	all := &faulty{Driver: driver}
	b, err := open(all)
	if err != nil {
		t.Fatal(err)
	}
	opening := all.calls
	if done, err := steps(b); done != 4 || err != nil {
		t.Fatalf("without a fault: %d steps, %v", done, err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if opening < 30 || all.calls < opening+50 {
		t.Fatalf("%d calls to open, %d in all: too few to test", opening, all.calls)
	}
	for at := 1; at <= all.calls; at++ {
		// Opening is much of the same, and so are the launches of a step.
		if at < opening && at%9 != 0 || at > opening && at < all.calls-40 && at%3 != 0 {
			continue
		}
		f := &faulty{Driver: driver, failAt: at}
		b, err := open(f)
		if at <= opening {
			if !errors.Is(err, cudrv.ErrLost) || f.opened.closed != 1 {
				t.Errorf("call %d of opening fails: %v, closed %d times", at, err, f.opened.closed)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		done, err := steps(b)
		var lost *engine.Error
		if done == 4 || !errors.As(err, &lost) || !errors.Is(err, cudrv.ErrLost) {
			t.Errorf("call %d fails: %d steps, %v", at, done, err)
		}
		if _, again := b.Submit(&engine.Batch{Seq: 100}); !errors.As(again, &lost) {
			t.Errorf("call %d fails: then Submit gives %v", at, again)
		}
		if err := b.Close(); err != nil || f.opened.closed != 1 {
			t.Errorf("call %d fails: Close gives %v, the context is closed %d times", at, err, f.opened.closed)
		}
	}
}
