package sim

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/kv"
)

// NumericsID names the hash; it changes whenever outputs may.
const NumericsID = "sim/v1"

// maxTransfers calls of Transfer may be pending; one more is ErrBusy.
const maxTransfers = 1024

// Backend is the simulated backend, see engine.Backend.
type Backend struct {
	cfg       Config
	info      engine.Info
	pageBytes int // what a page costs to move; info.PageBytes is what it takes here
	born      time.Time
	pool      *pool
	timers    sync.WaitGroup // real-time events that may still call finish

	mu      sync.Mutex
	device  *device
	closed  bool
	lost    *engine.Error // ended the device
	doom    *engine.Error // will end it when its ticket completes
	lastSeq uint64
	recent  []uint64              // Seq of the last MaxInflight batches, the oldest first
	asked   []bool                // by slot: a batch submitted since its bind samples
	attempt uint64                // counts batches that were validated, refused ones too
	bound   []uint64              // by slot: the last attempt that binds it
	batches []*ticket             // pending, in order
	moves   []*ticket             // transfers pending, in order
	arrives map[kv.PageID]*ticket // pages that are coming from the host

	// When the device and the two channels to the host are free.
	free, toHost, fromHost time.Duration
}

var _ engine.Backend = (*Backend)(nil)

// Open makes a backend. It takes 20 bytes per token of the pool.
func Open(cfg Config) (*Backend, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	p := &cfg.Profile
	b := &Backend{
		cfg: cfg, pageBytes: p.KVTokenBytes() * cfg.PageTokens, born: time.Now(),
		pool:  newPool(&cfg, rootHash(cfg.Seed)),
		asked: make([]bool, cfg.MaxSlots), bound: make([]uint64, cfg.MaxSlots),
		batches: make([]*ticket, 0, cfg.MaxInflight), recent: make([]uint64, 0, cfg.MaxInflight),
		arrives: map[kv.PageID]*ticket{},
	}
	b.info = engine.Info{
		Name: "sim", ModelID: modelID(&cfg), NumericsID: NumericsID,
		Vocab: cfg.Vocab, MaxPositions: cfg.MaxPositions,
		PageTokens: cfg.PageTokens, NumPages: cfg.Pages, PageBytes: entryBytes * cfg.PageTokens, KVType: p.kvType(),
		MaxSlots: cfg.MaxSlots, MaxRows: cfg.MaxRows, MaxTokens: cfg.MaxTokens, MaxInflight: cfg.MaxInflight,
		BalanceTokens: p.BalanceTokens(), Deterministic: true, Capabilities: engine.Capabilities{Digests: true},
	}
	if cfg.Logits {
		b.info.Capabilities = engine.AllCapabilities()
	}
	b.device = &device{
		pool: b.pool, draw: newSampler(cfg.MaxSlots, cfg.Vocab, cfg.Logits),
		slots: make([]progress, cfg.MaxSlots), fail: cfg.Faults.Row,
		tables: engine.NewTables(cfg.MaxSlots), sizes: engine.NewTableSizes(cfg.MaxSlots),
	}
	return b, nil
}

// modelID tells apart what gives different outputs.
func modelID(c *Config) string {
	name, kind := c.Profile.Name, "hash"
	if c.Profile.free() {
		name = "free"
	}
	if c.Logits {
		kind = "logits"
	}
	return fmt.Sprintf("sim/%s/%s/vocab-%d/seed-%d", name, kind, c.Vocab, c.Seed)
}

// Info is constant. PageBytes is what a page takes in host memory, 16 bytes per
// token; the time of copies and transfers is that of the profile's pages.
func (b *Backend) Info() engine.Info { return b.info }

// Submit implements engine.Backend.
func (b *Backend) Submit(batch *engine.Batch) (engine.Ticket, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.ended(); err != nil {
		return nil, err
	}
	if err := batch.Validate(&b.info, b.lastSeq, &b.device.sizes); err != nil {
		return nil, err
	}
	if err := b.checkDeferred(batch); err != nil {
		return nil, err
	}
	if len(b.batches) == b.info.MaxInflight {
		return nil, engine.ErrBusy
	}
	b.lastSeq = batch.Seq
	b.device.sizes.Take(batch)
	b.device.tables.Apply(batch)
	for i := range batch.Binds {
		b.asked[batch.Binds[i].Slot] = false
	}
	for i := range batch.Rows {
		if r := &batch.Rows[i]; r.Sample {
			b.asked[r.Slot] = true
		}
	}
	t := &ticket{backend: b}
	b.compute(batch, t)
	if len(b.recent) == b.info.MaxInflight {
		b.recent = slices.Delete(b.recent, 0, 1)
	}
	b.recent = append(b.recent, batch.Seq)
	b.schedule(batch, t)
	b.batches = append(b.batches, t)
	b.arm(t)
	return t, nil
}

// known is the last batch whose outcome the maker of the next one knew for sure:
// plans of MaxInflight batches may be open when one is made, and it may be made
// long before it comes here, so completed tickets prove nothing.
func (b *Backend) known() uint64 {
	if len(b.recent) < b.info.MaxInflight {
		return 0
	}
	return b.recent[0]
}

// checkDeferred refuses rows whose slot can have no last token when they run.
func (b *Backend) checkDeferred(batch *engine.Batch) error {
	b.attempt++
	for i := range batch.Binds {
		b.bound[batch.Binds[i].Slot] = b.attempt
	}
	for i := range batch.Rows {
		r := &batch.Rows[i]
		if !r.Deferred {
			continue
		}
		if b.bound[r.Slot] == b.attempt || !b.asked[r.Slot] {
			return fmt.Errorf("row %d: %w: deferred, but slot %d has sampled nothing since its bind", i, engine.ErrInvalid, r.Slot)
		}
	}
	return nil
}

// compute fills the ticket's result, or what will end the device with it. Behind
// a batch that ends the device nothing runs.
func (b *Backend) compute(batch *engine.Batch, t *ticket) {
	if b.doom != nil {
		return
	}
	op, err := "step", error(nil)
	if b.cfg.Faults.Device != nil {
		err = b.cfg.Faults.Device(batch.Seq)
	}
	if err == nil && b.cfg.Faults.Batch != nil {
		err = b.cfg.Faults.Batch(batch)
	}
	if err == nil {
		op, err = "sanitizer", b.checkArrivals(batch)
	}
	if err == nil {
		err = b.device.run(batch, b.known(), &t.res)
	}
	if err != nil {
		t.lost = &engine.Error{Backend: b.info.Name, Op: op, Err: err}
		b.doom = t.lost
	}
}

// checkArrivals looks for pages that are still on their way from the host and
// whose ticket the batch does not wait for.
func (b *Backend) checkArrivals(batch *engine.Batch) error {
	if len(b.arrives) == 0 || b.cfg.Sanitize == Off {
		return nil
	}
	awaited := func(id kv.PageID) bool {
		t := b.arrives[id]
		return t == nil || slices.Contains(batch.After, engine.Ticket(t))
	}
	for i, c := range batch.Copies {
		if !awaited(c.Src) || !awaited(c.Dst) {
			return fmt.Errorf("%w: batch %d, copy %d, page %d to page %d: one is on its way from the host, and the ticket is not in After",
				ErrCorrupt, batch.Seq, i, c.Src, c.Dst)
		}
	}
	for i := range batch.Rows {
		r := &batch.Rows[i]
		for j, id := range b.device.tables.Of(r.Slot)[:kv.CeilPages(int(r.Start)+r.Len(), b.info.PageTokens)] {
			if !awaited(id) {
				return fmt.Errorf("%w: batch %d, row %d, position %d, page %d: it is on its way from the host, and the ticket is not in After",
					ErrCorrupt, batch.Seq, i, j*b.info.PageTokens, id)
			}
		}
	}
	return nil
}

// schedule finds when the step ends.
func (b *Backend) schedule(batch *engine.Batch, t *ticket) {
	start := max(b.free, later(b.now(), b.cfg.Profile.Host(len(batch.Rows))))
	for _, a := range batch.After {
		if a, ok := a.(*ticket); ok && !a.over.Load() {
			start = max(start, a.end)
		}
	}
	took := b.cfg.Profile.Step(batch, b.pageBytes)
	if b.cfg.Faults.Slow != nil {
		if f := b.cfg.Faults.Slow(batch.Seq); f >= 0 {
			took = duration(float64(float64(took) * f))
		}
	}
	t.end = later(start, took)
	t.res.Stats.Nanos = took.Nanoseconds()
	b.free = t.end
}

// Transfer implements engine.Backend. Each direction is a channel of its own
// beside the device; what goes to the host waits for the batches before it.
func (b *Backend) Transfer(ops []engine.TransferOp) (engine.Ticket, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.ended(); err != nil {
		return nil, err
	}
	if err := b.info.CheckTransfer(ops); err != nil {
		return nil, err
	}
	if len(b.moves) == maxTransfers {
		return nil, engine.ErrBusy
	}
	t := &ticket{backend: b, end: b.now()}
	var pages [2]int
	for _, op := range ops {
		pages[op.Kind]++
		if op.Kind == engine.ToHost {
			b.pool.save(op.Host, op.Page)
		} else {
			b.pool.load(op.Page, op.Host)
			b.arrives[op.Page] = t
		}
	}
	if n := pages[engine.ToHost]; n > 0 {
		b.toHost = later(max(b.toHost, b.free, b.now()), b.cfg.Profile.Transfer(n*b.pageBytes))
		t.end = max(t.end, b.toHost)
	}
	if n := pages[engine.FromHost]; n > 0 {
		b.fromHost = later(max(b.fromHost, b.now()), b.cfg.Profile.Transfer(n*b.pageBytes))
		t.end = max(t.end, b.fromHost)
	}
	t.res.Stats.Nanos = (t.end - b.now()).Nanoseconds()
	b.moves = append(b.moves, t)
	b.arm(t)
	return t, nil
}

// HostAlloc returns ordinary memory; there is nothing to pin.
func (b *Backend) HostAlloc(bytes int) ([]byte, error) {
	if bytes <= 0 {
		return nil, fmt.Errorf("sim: HostAlloc of %d bytes, want at least 1", bytes)
	}
	return make([]byte, bytes), nil
}

// HostFree leaves the memory to the garbage collector.
func (b *Backend) HostFree([]byte) {}
