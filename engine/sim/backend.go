package sim

import (
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/coppice-llm/coppice/engine"
)

// NumericsID names the hash function. It changes with every change of outputs.
const NumericsID = "sim/v1"

// Backend is the simulated backend, see engine.Backend.
type Backend struct {
	cfg       Config
	info      engine.Info
	pageBytes int // bytes of a page on the simulated device, for the time of moves; info.PageBytes is its size in host memory
	born      time.Time
	pool      *pool
	timers    sync.WaitGroup // real-time events that may still call finish

	mu      sync.Mutex
	device  *device
	closed  bool
	lost    *engine.Error // error that ended the device
	doom    *engine.Error // error that will end the device when its batch's ticket completes
	lastSeq uint64
	recent  []uint64      // Seq of the last MaxInflight batches, the oldest first
	batches []*ticket     // tickets of pending batches, in the order of submission
	free    time.Duration // time when the device has finished all submitted batches
	moving  moving
}

var (
	_ engine.Backend = (*Backend)(nil)
	_ engine.Mover   = (*Backend)(nil)
)

// Open makes a backend. It takes 20 bytes per token of the pool.
func Open(cfg Config) (*Backend, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	p := &cfg.Profile
	b := &Backend{
		cfg: cfg, pageBytes: p.KVTokenBytes() * cfg.PageTokens, born: time.Now(),
		pool:    newPool(&cfg, rootHash(cfg.Seed)),
		batches: make([]*ticket, 0, cfg.MaxInflight), recent: make([]uint64, 0, cfg.MaxInflight),
		moving: newMoving(),
	}
	b.info = engine.Info{
		Name: "sim", ModelID: modelID(&cfg), NumericsID: NumericsID,
		Vocab: cfg.Vocab, MaxPositions: cfg.MaxPositions,
		PageTokens: cfg.PageTokens, NumPages: cfg.Pages, PageBytes: entryBytes * cfg.PageTokens, KVType: p.kvType(),
		MaxSlots: cfg.MaxSlots, MaxRows: cfg.MaxRows, MaxTokens: cfg.MaxTokens, MaxInflight: cfg.MaxInflight, MaxMasks: cfg.MaxRows * cfg.MaxInflight,
		MaxDrafts: min(max(cfg.MaxDrafts, 0), cfg.MaxTokens-1), HiddenSize: hiddenSize,
		Cost: p.Cost(), Deterministic: true, Capabilities: engine.Capabilities{Digests: true},
	}
	if cfg.Logits {
		b.info.Capabilities = engine.AllCapabilities()
	}
	b.device = &device{
		pool: b.pool, draw: newSampler(cfg.MaxSlots, cfg.Vocab, cfg.Logits),
		slots: make([]progress, cfg.MaxSlots), fail: cfg.Faults.Row,
		tables: engine.NewTables(cfg.MaxSlots), masks: engine.NewMasks(b.info.MaxMasks), before: engine.NewSubmitted(&b.info),
	}
	return b, nil
}

// modelID returns an id that differs between configurations with different outputs.
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

// Info returns the constant description of the backend. PageBytes is the size of a page in
// host memory, 16 bytes per token; copies and transfers take the time of the profile's pages.
func (b *Backend) Info() engine.Info { return b.info }

// Submit implements engine.Backend.
func (b *Backend) Submit(batch *engine.Batch) (engine.Ticket, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.ended(); err != nil {
		return nil, err
	}
	if err := batch.Validate(&b.info, b.lastSeq, &b.device.before); err != nil {
		return nil, err
	}
	if len(b.batches) == b.info.MaxInflight {
		return nil, engine.ErrBusy
	}
	b.lastSeq = batch.Seq
	b.device.before.Take(batch)
	b.device.tables.Apply(batch)
	b.device.masks.Apply(batch)
	t := &ticket{backend: b}
	if b.compute(batch, t); b.cfg.Sanitize == Full {
		t.lent.lendBatch(batch)
	}
	if len(b.recent) == b.info.MaxInflight {
		b.recent = slices.Delete(b.recent, 0, 1)
	}
	b.recent = append(b.recent, batch.Seq)
	b.schedule(batch, t)
	b.batches = append(b.batches, t)
	b.arm(t)
	return t, nil
}

// compute fills in t.res. If a fault or the sanitizer ends the device in this batch, compute
// instead sets t.lost, the error that will end the device when t completes. Batches after that one
// are not computed.
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
		op, err = "sanitizer", b.checkMoves(batch)
	}
	if err == nil {
		b.device.pending = math.MaxUint64
		if len(b.batches) > 0 {
			b.device.pending = b.batches[0].res.Seq
		}
		err = b.device.run(batch, b.known(), &t.res)
	}
	if err != nil {
		t.lost = &engine.Error{Backend: b.info.Name, Op: op, Err: err}
		b.doom = t.lost
	}
}

// known returns the Seq of the last batch whose outcome the scheduler must have known when it
// planned the batch that is now submitted; 0 if there is none. That is the batch MaxInflight
// before it. A later batch does not count, even if its ticket is complete: the scheduler may plan
// up to MaxInflight batches ahead and submit a plan much later.
func (b *Backend) known() uint64 {
	if len(b.recent) < b.info.MaxInflight {
		return 0
	}
	return b.recent[0]
}

// schedule sets t.end, the time when the step ends. The step begins when the device is free, the
// moves in batch.After have ended, and the host's time for the step has passed since now.
func (b *Backend) schedule(batch *engine.Batch, t *ticket) {
	start := max(b.free, b.moving.after(batch.After), later(b.now(), b.cfg.Profile.Host(len(batch.Rows))))
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

// HostAlloc returns ordinary memory, because a simulated device needs no page-locked memory.
func (b *Backend) HostAlloc(bytes int) ([]byte, error) {
	if bytes <= 0 {
		return nil, fmt.Errorf("sim: HostAlloc of %d bytes, want at least 1", bytes)
	}
	return make([]byte, bytes), nil
}

// HostFree leaves the memory to the garbage collector.
func (b *Backend) HostFree([]byte) {}
