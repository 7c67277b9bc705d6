package cuda

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/engine/model"
	"github.com/coppice-llm/coppice/kv"
)

// NumericsID names the order of summation; it changes whenever bits may change.
const NumericsID = "cuda/mma16816-k8-kv256/v1"

// Backend is the CUDA backend, see engine.Backend.
type Backend struct {
	info engine.Info
	dev  *device

	mu        sync.Mutex
	closed    bool
	lost      error // *engine.Error that ended the device
	lastSeq   uint64
	tables    engine.TableSizes // as of lastSeq
	batches   int               // pending
	transfers int               // pending
	sampled   []bool            // by slot: a batch submitted since its bind samples

	jobs    chan *job // to the goroutine that launches
	queued  chan *job // to the goroutine that waits
	places  chan *place
	abort   atomic.Bool
	done    chan struct{} // closed when both have ended
	closing error         // of the device, set before done
}

// job is one entry of the queue: a batch, or transfers.
type job struct {
	batch  *engine.Batch
	ops    []engine.TransferOp
	ticket *ticket
	place  *place
	plan   outcome
}

var _ engine.Backend = (*Backend)(nil)

// Open uploads the weights of m, reserves the pool and starts the goroutines. m
// may be closed afterwards.
func Open(m *model.Model, cfg Config) (*Backend, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	c := m.Config()
	if err := supported(c); err != nil {
		return nil, err
	}
	// Positions past the pool can't be reached, so nothing is sized for them.
	positions := min(c.MaxPositions, cfg.Pages*cfg.PageTokens)
	d, err := newDevice(m, cfg, positions)
	if err != nil {
		return nil, err
	}
	b := &Backend{
		info: engine.Info{
			Name: "cuda", ModelID: m.ID() + "/bf16", NumericsID: NumericsID,
			Vocab: c.Vocab, MaxPositions: c.MaxPositions,
			PageTokens: cfg.PageTokens, NumPages: cfg.Pages, PageBytes: 2 * d.pageElements, KVType: kv.BF16,
			MaxSlots: cfg.MaxSlots, MaxRows: cfg.MaxRows, MaxTokens: cfg.MaxTokens, MaxInflight: cfg.MaxInflight,
			Deterministic: true, Capabilities: engine.Capabilities{Digests: true, Logprobs: true, Penalties: true},
		},
		dev:     d,
		sampled: make([]bool, cfg.MaxSlots),
		tables:  engine.NewTableSizes(cfg.MaxSlots),
		jobs:    make(chan *job, cfg.MaxInflight+cfg.MaxTransfers),
		queued:  make(chan *job, cfg.MaxInflight+cfg.MaxTransfers),
		places:  make(chan *place, cfg.MaxInflight+cfg.MaxTransfers),
		done:    make(chan struct{}),
	}
	for range cap(b.places) {
		b.places <- &place{}
	}
	go b.launch()
	go b.wait()
	return b, nil
}

// Info is constant.
func (b *Backend) Info() engine.Info { return b.info }

// open reports why nothing can be submitted; b.mu is held.
func (b *Backend) open() error {
	if b.closed {
		return engine.ErrClosed
	}
	return b.lost
}

// Submit implements engine.Backend. The transfers in After precede the batch on
// the same stream, so there is nothing to wait for.
func (b *Backend) Submit(batch *engine.Batch) (engine.Ticket, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.open(); err != nil {
		return nil, err
	}
	if err := batch.Validate(&b.info, b.lastSeq, &b.tables); err != nil {
		return nil, err
	}
	if err := b.checkRows(batch); err != nil {
		return nil, err
	}
	if b.batches == b.info.MaxInflight {
		return nil, engine.ErrBusy
	}
	for i := range batch.Binds {
		b.sampled[batch.Binds[i].Slot] = false
	}
	for i := range batch.Rows {
		if r := &batch.Rows[i]; r.Sample {
			b.sampled[r.Slot] = true
		}
	}
	b.lastSeq = batch.Seq
	b.tables.Take(batch)
	b.batches++
	t := newTicket()
	b.jobs <- &job{batch: batch, ticket: t}
	return t, nil
}

// checkRows refuses rows whose slot can have no last token when they run.
func (b *Backend) checkRows(batch *engine.Batch) error {
	for i := range batch.Rows {
		r := &batch.Rows[i]
		if !r.Deferred {
			continue
		}
		bound := false
		for j := range batch.Binds {
			bound = bound || batch.Binds[j].Slot == r.Slot
		}
		if bound || !b.sampled[r.Slot] {
			return fmt.Errorf("row %d: %w: deferred, but slot %d has sampled nothing since its bind", i, engine.ErrInvalid, r.Slot)
		}
	}
	return nil
}

// Transfer implements engine.Backend: the copies take their turn among the
// batches. It fails with ErrBusy when Config.MaxTransfers calls are pending.
func (b *Backend) Transfer(ops []engine.TransferOp) (engine.Ticket, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.open(); err != nil {
		return nil, err
	}
	for i, op := range ops {
		switch {
		case op.Kind != engine.ToHost && op.Kind != engine.FromHost:
			return nil, fmt.Errorf("transfer %d: %w: kind %d", i, engine.ErrInvalid, op.Kind)
		case op.Page < 0 || int(op.Page) >= b.info.NumPages:
			return nil, fmt.Errorf("transfer %d: %w: page %d of %d", i, engine.ErrInvalid, op.Page, b.info.NumPages)
		case len(op.Host) != b.info.PageBytes:
			return nil, fmt.Errorf("transfer %d: %w: %d bytes for a page of %d", i, engine.ErrInvalid, len(op.Host), b.info.PageBytes)
		}
	}
	if b.transfers == b.dev.cfg.MaxTransfers {
		return nil, engine.ErrBusy
	}
	b.transfers++
	t := newTicket()
	b.jobs <- &job{ops: ops, ticket: t}
	return t, nil
}

// HostAlloc returns pinned memory.
func (b *Backend) HostAlloc(bytes int) ([]byte, error) {
	if bytes <= 0 {
		return nil, fmt.Errorf("cuda: HostAlloc of %d bytes", bytes)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := b.dev.ctx.Bind(); err != nil {
		return nil, err
	}
	return b.dev.ctx.HostAlloc(bytes)
}

// HostFree gives memory of HostAlloc back.
func (b *Backend) HostFree(m []byte) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if b.dev.ctx.Bind() == nil {
		_ = b.dev.ctx.HostFree(m) // after Close the memory went with the context
	}
}

// Close implements engine.Backend. What the device has not done yet is lost.
func (b *Backend) Close() error {
	b.mu.Lock()
	first := !b.closed
	if first {
		b.closed = true
		b.abort.Store(true)
		close(b.jobs)
	}
	b.mu.Unlock()
	<-b.done
	if first {
		return b.closing
	}
	return nil
}

// finish gives the place in the queue back before it completes the ticket, so
// that a caller that has seen the ticket can submit.
func (b *Backend) finish(j *job, res *engine.Result, err error) {
	b.mu.Lock()
	if err != nil && !errors.Is(err, engine.ErrClosed) && b.lost == nil {
		b.lost = err
	}
	if j.batch != nil {
		b.batches--
	} else {
		b.transfers--
	}
	b.mu.Unlock()
	if j.place != nil {
		b.places <- j.place
	}
	j.ticket.complete(res, err)
}

// ticket implements engine.Ticket.
type ticket struct {
	done chan struct{}
	res  *engine.Result // res and err are written before done is closed
	err  error
}

func newTicket() *ticket { return &ticket{done: make(chan struct{})} }

func (t *ticket) complete(res *engine.Result, err error) {
	if res == nil == (err == nil) {
		panic(errors.New("cuda: a ticket ends with a result or an error"))
	}
	t.res, t.err = res, err
	close(t.done)
}

// Done implements engine.Ticket.
func (t *ticket) Done() <-chan struct{} { return t.done }

// Result implements engine.Ticket.
func (t *ticket) Result() (*engine.Result, error) {
	select {
	case <-t.done:
		return t.res, t.err
	default:
		return nil, engine.ErrPending
	}
}
