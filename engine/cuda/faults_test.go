package cuda_test

import (
	"encoding/binary"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/engine/cuda"
	"github.com/coppice-llm/coppice/engine/cuda/cudrv"
	"github.com/coppice-llm/coppice/engine/cuda/cudrv/vm"
	"github.com/coppice-llm/coppice/engine/cuda/ptxvm"
	"github.com/coppice-llm/coppice/engine/model"
	"github.com/coppice-llm/coppice/kv"
)

// failure is the way in which call number failAt of a driver fails.
type failure int

const (
	lostDevice   failure = iota // this call and all later ones fail
	outOfMemory                 // only this call fails
	faultyKernel                // the next launch writes out of bounds
	hungKernel                  // the next wait for an event does not return
	failures
)

func (f failure) String() string {
	return [...]string{"lost device", "out of memory", "faulty kernel", "hung kernel"}[f]
}

// want returns the error that the backend must report.
func (f failure) want() error {
	return [...]error{cudrv.ErrLost, cudrv.ErrMemory, cudrv.ErrLost, cuda.ErrStuck}[f]
}

// faulty wraps the interpreter's driver and makes its call number failAt fail.
type faulty struct {
	*vm.Driver
	failure       failure
	failAt, calls int
	hung          chan struct{} // closed to end a hung kernel
	opened        *faultyContext
}

// faultyContext counts the calls that queue work, wait for it, or allocate memory.
type faultyContext struct {
	cudrv.Context
	f      *faulty
	mu     sync.Mutex // a separate goroutine of the backend waits for events
	err    error
	failed string // the call that failed
	allocs int    // calls that allocate device memory
	closed int
	// capturing is true from BeginCapture to Instantiate. spared is set if a call failed during
	// that time for lack of memory: the backend then works without graphs.
	capturing, spared bool
}

func (f *faulty) Open(i int) (cudrv.Context, error) {
	c, err := f.Driver.Open(i)
	f.opened = &faultyContext{Context: c, f: f}
	return f.opened, err
}

func (c *faultyContext) fails(call string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.f.calls++; c.err != nil || c.f.calls != c.f.failAt {
		return c.err
	}
	c.failed = call
	switch c.f.failure {
	case lostDevice:
		c.err = &cudrv.Error{Call: call, Code: cudrv.CodeLaunchFailed, Err: errors.New("planted")}
		return c.err
	case outOfMemory:
		c.spared = c.capturing
		return &cudrv.Error{Call: call, Code: cudrv.CodeOutOfMemory, Err: errors.New("planted")}
	}
	return nil
}

// due reports whether the call that fails has been made and f is the way in which it fails.
func (c *faultyContext) due(f failure) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.f.failure == f && c.f.failAt > 0 && c.f.calls >= c.f.failAt
}

func (c *faultyContext) Alloc(n int) (cudrv.Ptr, error) {
	if err := c.fails("cuMemAlloc"); err != nil {
		return 0, err
	}
	c.allocs++ // no goroutine but the launching one allocates
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
	if c.due(faultyKernel) {
		l.Args = slices.Clone(l.Args)
		binary.LittleEndian.PutUint64(l.Args, 1<<40) // every kernel writes to its first argument
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
	if c.due(hungKernel) {
		<-c.f.hung
	}
	return c.Context.SyncEvent(e)
}

func (c *faultyContext) capture(on bool) {
	c.mu.Lock()
	c.capturing = on
	c.mu.Unlock()
}

func (c *faultyContext) BeginCapture(s cudrv.Stream) error {
	c.capture(true)
	if err := c.fails("cuStreamBeginCapture"); err != nil {
		return err
	}
	return c.Context.BeginCapture(s)
}

func (c *faultyContext) EndCapture(s cudrv.Stream) (cudrv.Graph, error) {
	g, err := c.Context.EndCapture(s)
	return g, errors.Join(c.fails("cuStreamEndCapture"), err)
}

func (c *faultyContext) Instantiate(g cudrv.Graph) (cudrv.GraphExec, error) {
	defer c.capture(false)
	if err := c.fails("cuGraphInstantiate"); err != nil {
		return 0, err
	}
	return c.Context.Instantiate(g)
}

func (c *faultyContext) LaunchGraph(x cudrv.GraphExec, s cudrv.Stream) error {
	if err := c.fails("cuGraphLaunch"); err != nil {
		return err
	}
	if c.due(faultyKernel) {
		return c.Context.Fill(s, 1<<40, 0, 4)
	}
	return c.Context.LaunchGraph(x, s)
}

func (c *faultyContext) Close() error {
	c.mu.Lock()
	c.closed++
	c.mu.Unlock()
	return c.Context.Close()
}

// ran has the outcome of steps.
type ran struct {
	done int   // tickets without error
	err  error // the first error of a ticket
	out  []engine.RowOut
}

// tokens returns the sampled tokens, and the errors of rows.
func (r *ran) tokens() (tokens []kv.Token, errs []error) {
	for _, o := range r.out {
		if tokens = append(tokens, o.Token); o.Err != nil {
			errs = append(errs, o.Err)
		}
	}
	return tokens, errs
}

// steps runs a prompt and some tokens with two batches in flight, whose Seq begins after seq.
func steps(b engine.Backend, seq uint64) (r ran) {
	var tickets []engine.Ticket
	note := func(e error) {
		if r.err == nil {
			r.err = e
		}
	}
	wait := func() {
		t := tickets[0]
		tickets = tickets[1:]
		<-t.Done()
		res, e := t.Result()
		if note(e); e == nil {
			r.done++
			r.out = append(r.out, res.Out...)
		}
	}
	for i := range int32(4) {
		row := engine.Row{Start: 19 + i, Deferred: true, Pages: []kv.PageID{3, 1}, Sample: true, SampleIndex: i}
		batch := &engine.Batch{Seq: seq + uint64(i+1)}
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
			wait()
		}
	}
	for len(tickets) > 0 {
		wait()
	}
	return r
}

// TestFailingDriver makes each call of a driver fail in each way. If it fails in Open, Open must fail
// and close the context. Otherwise each ticket must end, the error must name the cause, later calls of
// Submit must return the same error, and Close must return. But lack of memory fails the rows of its step
// alone, or if it is lacking for a graph, nothing.
func TestFailingDriver(t *testing.T) {
	m, err := model.Open(nanoDir)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	base := vm.New(ptxvm.Config{MemoryBytes: 16 << 20})
	open := func(f *faulty) (*cuda.Backend, error) {
		c := cuda.Config{Driver: f, Pages: 8, MaxSlots: 2, MaxRows: 2, MaxTokens: 64, MaxInflight: 2}
		if f.failure == hungKernel {
			c.StepTimeout = 5 * time.Millisecond // a slow step may also exceed it, and then counts as hung
		}
		return cuda.Open(m, c)
	}
	all := &faulty{Driver: base}
	b, err := open(all)
	if err != nil {
		t.Fatal(err)
	}
	opening := all.calls
	had := all.opened.allocs
	want := steps(b, 0)
	if want.done != 4 || want.err != nil {
		t.Fatalf("without a fault: %+v", want)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if n := all.opened.allocs - had; n != 0 {
		t.Errorf("%d allocations of device memory by steps, which the budget lacks", n)
	}
	if opening < 30 || all.calls < opening+50 {
		t.Fatalf("%d calls to open, %d in all: too few to test", opening, all.calls)
	}
	// The calls of Open are similar to each other, and so are those of a step: sample them.
	last, every := all.calls-6, [failures]int{7, 29, 19, 37}
	if cuda.RaceDetector {
		last, every = all.calls-1, [failures]int{199, 499, 499, 199}
	}
	refused := 0
	for how := range failures {
		for at := 1; at <= all.calls; at++ {
			if at%every[how] != 0 && at < last || at <= opening && how != lostDevice && how != outOfMemory ||
				at >= last && how == faultyKernel { // there is no later launch
				continue
			}
			f := &faulty{Driver: base, failure: how, failAt: at, hung: make(chan struct{})}
			b, err := open(f)
			if at <= opening {
				if !errors.Is(err, how.want()) || f.opened.closed != 1 {
					t.Errorf("%v at call %d of opening: %v, closed %d times", how, at, err, f.opened.closed)
				}
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			if how == outOfMemory {
				refused += refuses(t, b, f, &want)
			} else {
				fails(t, b, f)
			}
		}
	}
	if refused == 0 && !cuda.RaceDetector { // with it too few calls are tried
		t.Error("no step failed for lack of memory")
	}
}

// TestLateAnswer checks a device that responds after it was given up: by then the batch is the
// caller's again, and the backend must not read it.
func TestLateAnswer(t *testing.T) {
	m, err := model.Open(nanoDir)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	f := &faulty{Driver: vm.New(ptxvm.Config{MemoryBytes: 16 << 20}), failure: hungKernel, hung: make(chan struct{})}
	b, err := cuda.Open(m, cuda.Config{Driver: f, Pages: 8, MaxSlots: 2, MaxRows: 2, MaxTokens: 64, MaxInflight: 2, StepTimeout: 5 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	f.failAt = f.calls + 1
	batch := &engine.Batch{Seq: 1, Binds: []engine.SlotBind{{Pages: []kv.PageID{0}}}, Rows: []engine.Row{{Tokens: make([]kv.Token, 4), Sample: true}}}
	ticket, err := b.Submit(batch)
	if err != nil {
		t.Fatal(err)
	}
	<-ticket.Done()
	if _, err := ticket.Result(); !errors.Is(err, cuda.ErrStuck) {
		t.Errorf("a device that does not respond: %v", err)
	}
	batch.Rows = slices.Repeat([]engine.Row{{PromptLogprobs: true}}, 9)
	close(f.hung)
	if err := b.Close(); !errors.Is(err, cuda.ErrStuck) {
		t.Errorf("Close: %v", err)
	}
	cuda.Wait(b)
}

// refuses runs steps on a backend whose driver once has no memory, and then again: the second time all
// must be as it was without a fault. It returns 1 if rows have failed.
func refuses(t *testing.T, b *cuda.Backend, f *faulty, want *ran) int {
	t.Helper()
	got := steps(b, 0)
	if call := f.opened.failed; call == "cuEventRecord" || call == "cuEventSynchronize" {
		lost(t, b, f, &got)
		return 0
	}
	tokens, errs := got.tokens()
	failed := len(errs) > 0
	if got.done != 4 || got.err != nil || failed == f.opened.spared || failed && !(errors.Is(errs[0], engine.ErrMemory) && errors.Is(errs[0], cudrv.ErrMemory)) {
		t.Errorf("out of memory at call %d, %s: %d steps, %v, %v", f.failAt, f.opened.failed, got.done, got.err, errs)
	}
	all, _ := want.tokens()
	if !failed && !slices.Equal(tokens, all) {
		t.Errorf("out of memory at call %d, which makes a graph: tokens %v, want %v", f.failAt, tokens, all)
	}
	again := steps(b, 10)
	if tokens, errs := again.tokens(); again.err != nil || len(errs) > 0 || !slices.Equal(tokens, all) {
		t.Errorf("after lack of memory at call %d, %s: tokens %v, want %v; %v, %v", f.failAt, f.opened.failed, tokens, all, again.err, errs)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if failed {
		return 1
	}
	return 0
}

// fails runs steps on a backend whose driver fails permanently.
func fails(t *testing.T, b *cuda.Backend, f *faulty) {
	t.Helper()
	got := steps(b, 0)
	lost(t, b, f, &got)
}

// lost checks the outcome of steps on a device that is lost, and what the backend does then.
func lost(t *testing.T, b *cuda.Backend, f *faulty, got *ran) {
	t.Helper()
	var lost *engine.Error
	if got.done == 4 || !errors.As(got.err, &lost) || !errors.Is(got.err, f.failure.want()) {
		t.Errorf("%v at call %d: %d steps, %v", f.failure, f.failAt, got.done, got.err)
	}
	if _, again := b.Submit(&engine.Batch{Seq: 100}); !errors.As(again, &lost) {
		t.Errorf("%v at call %d: Submit then returns %v", f.failure, f.failAt, again)
	}
	if f.failure == hungKernel {
		if _, err := b.HostAlloc(1); !errors.Is(err, cuda.ErrStuck) {
			t.Errorf("host memory of a device that does not respond: %v", err)
		}
		if err := b.Close(); !errors.Is(err, cuda.ErrStuck) {
			t.Errorf("%v at call %d: Close gives %v", f.failure, f.failAt, err)
		}
		close(f.hung) // ends the goroutines; with a real device they end with the process
		cuda.Wait(b)
	} else if err := b.Close(); err != nil {
		t.Errorf("%v at call %d: Close gives %v", f.failure, f.failAt, err)
	}
	if f.opened.closed != 1 {
		t.Errorf("%v at call %d: the context is closed %d times", f.failure, f.failAt, f.opened.closed)
	}
}

// TestEndlessKernel checks a kernel that the driver stops for exceeding its limit of instructions.
func TestEndlessKernel(t *testing.T) {
	m, err := model.Open(nanoDir)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	f := &faulty{Driver: vm.New(ptxvm.Config{MemoryBytes: 16 << 20, MaxInstructions: 20000})}
	b, err := cuda.Open(m, cuda.Config{Driver: f, Pages: 8, MaxSlots: 2, MaxRows: 2, MaxTokens: 64, MaxInflight: 2})
	if err != nil {
		t.Fatal(err)
	}
	fails(t, b, f)
}
