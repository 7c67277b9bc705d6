package cpu

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/engine/model"
	"github.com/coppice-llm/coppice/kv"
)

// NumericsID names the order of summation; it changes whenever bits may change.
const NumericsID = "cpu/f32-seqk/v1"

// QuantNumericsID is NumericsID of models with products in integers, see quant.go.
const QuantNumericsID = NumericsID + "+q8-block32/v1"

// Backend is the CPU backend, see engine.Backend.
type Backend struct {
	info  engine.Info
	step  *step
	arena *arena

	mu        sync.Mutex
	closed    bool
	tables    engine.TableSizes // as of lastSeq
	lastSeq   uint64
	batches   int    // pending
	transfers int    // pending
	sampled   []bool // by slot: a batch submitted since its bind samples

	jobs    chan job
	abort   atomic.Bool
	done    chan struct{} // closed when the runner has ended
	closing error         // of the arena, set before done
}

// job is one entry of the queue: a batch, or transfers.
type job struct {
	batch  *engine.Batch
	ops    []engine.TransferOp
	ticket *ticket
}

var _ engine.Backend = (*Backend)(nil)

// Open packs the weights of m, reserves the pool and starts the goroutines. m may
// be closed afterwards. It takes the packed weights' 4 bytes per parameter, or 2
// if they are bf16 and the path is not Portable, or those of their blocks if they are
// quantised, the embedding once more, and the
// pool's Pages·PageBytes. It fails if Config.ISA, or COPPICE_CPU where that is
// empty, names a path that the machine can't run.
func Open(m *model.Model, cfg Config) (*Backend, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	var err error
	if cfg.ISA, err = chooseISA(cfg.ISA); err != nil {
		return nil, err
	}
	c := m.Config()
	if c.Hidden%16 != 0 || c.HeadDim%16 != 0 {
		return nil, fmt.Errorf("cpu: hidden size %d and head dim %d, want multiples of 16", c.Hidden, c.HeadDim)
	}
	a, err := newArena(c, cfg)
	if err != nil {
		return nil, fmt.Errorf("cpu: KV pool: %w", err)
	}
	// Positions past the pool can't be reached, so nothing is sized for them.
	positions := min(c.MaxPositions, cfg.Pages*cfg.PageTokens)
	step, err := newStep(m, cfg, a, positions)
	if err != nil {
		return nil, errors.Join(err, a.close())
	}
	numerics := NumericsID
	if some, _ := step.w.quantized(); some {
		numerics = QuantNumericsID
	}
	b := &Backend{
		info: engine.Info{
			Name: "cpu", ModelID: m.ID() + "/kv-f32", NumericsID: numerics,
			Vocab: c.Vocab, MaxPositions: c.MaxPositions,
			PageTokens: cfg.PageTokens, NumPages: cfg.Pages, PageBytes: 4 * a.pageFloats(), KVType: kv.F32,
			MaxSlots: cfg.MaxSlots, MaxRows: cfg.MaxRows, MaxTokens: cfg.MaxTokens, MaxInflight: cfg.MaxInflight,
			Deterministic: true, BalanceTokens: balanceTokens(c), Capabilities: engine.AllCapabilities(),
		},
		arena:   a,
		step:    step,
		sampled: make([]bool, cfg.MaxSlots),
		tables:  engine.NewTableSizes(cfg.MaxSlots),
		jobs:    make(chan job, cfg.MaxInflight+cfg.MaxTransfers),
		done:    make(chan struct{}),
	}
	go b.run()
	return b, nil
}

// balanceTokens counts multiply-adds: those of a token's own weights, over those
// of scores and values per token of context.
func balanceTokens(c *model.Config) int {
	attn := 2*c.Hidden*c.Heads*c.HeadDim + 2*c.Hidden*c.KVHeads*c.HeadDim
	return (attn + 3*c.Hidden*c.FFN) / (2 * c.Heads * c.HeadDim)
}

// Info is constant.
func (b *Backend) Info() engine.Info { return b.info }

// ISA is the path that the kernels take. It changes no bit and no id.
func (b *Backend) ISA() ISA { return b.step.ops.isa }

// Submit implements engine.Backend. The transfers in After precede the batch in
// the queue, so there is nothing to wait for.
func (b *Backend) Submit(batch *engine.Batch) (engine.Ticket, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, engine.ErrClosed
	}
	if err := batch.Validate(&b.info, b.lastSeq, &b.tables); err != nil {
		return nil, err
	}
	if err := b.checkDeferred(batch); err != nil {
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
	b.jobs <- job{batch: batch, ticket: t}
	return t, nil
}

// checkDeferred refuses rows whose slot can have no last token when they run.
func (b *Backend) checkDeferred(batch *engine.Batch) error {
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
	if b.closed {
		return nil, engine.ErrClosed
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
	if b.transfers == cap(b.jobs)-b.info.MaxInflight {
		return nil, engine.ErrBusy
	}
	b.transfers++
	t := newTicket()
	b.jobs <- job{ops: ops, ticket: t}
	return t, nil
}

// HostAlloc returns ordinary memory; there is nothing to pin.
func (b *Backend) HostAlloc(bytes int) ([]byte, error) {
	if bytes <= 0 {
		return nil, fmt.Errorf("cpu: HostAlloc of %d bytes", bytes)
	}
	return make([]byte, bytes), nil
}

// HostFree leaves the memory to the garbage collector.
func (b *Backend) HostFree([]byte) {}

// Close implements engine.Backend.
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

// run is the one goroutine that computes. It owns step and arena.
func (b *Backend) run() {
	defer close(b.done)
	for j := range b.jobs {
		res, err := b.execute(j)
		b.finish(j, res, err)
	}
	b.closing = errors.Join(b.step.close(), b.arena.close())
}

// execute runs one job; the result or error is the ticket's.
func (b *Backend) execute(j job) (*engine.Result, error) {
	if b.abort.Load() {
		return nil, engine.ErrClosed
	}
	start := time.Now()
	var res *engine.Result
	if j.batch != nil {
		var ok bool
		if res, ok = b.step.run(j.batch, &b.abort); !ok {
			return nil, engine.ErrClosed
		}
	} else {
		res = &engine.Result{}
		for _, op := range j.ops {
			if op.Kind == engine.ToHost {
				copy(op.Host, b.arena.bytes(op.Page))
			} else {
				copy(b.arena.bytes(op.Page), op.Host)
			}
		}
	}
	res.Stats.Nanos = time.Since(start).Nanoseconds()
	return res, nil
}

// finish gives the place in the queue back before it completes the ticket, so
// that who has seen the ticket can submit.
func (b *Backend) finish(j job, res *engine.Result, err error) {
	b.mu.Lock()
	if j.batch != nil {
		b.batches--
	} else {
		b.transfers--
	}
	b.mu.Unlock()
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
		panic(errors.New("cpu: a ticket ends with a result or an error"))
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
