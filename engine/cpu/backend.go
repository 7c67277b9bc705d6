package cpu

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/engine/internal/intake"
	"github.com/coppice-llm/coppice/engine/model"
	levels "github.com/coppice-llm/coppice/internal/isa"
	"github.com/coppice-llm/coppice/kv"
)

// NumericsID names the order of summation. Any change that may alter a bit of a result must
// change it: caches and recorded answers are compared under this name.
const NumericsID = "cpu/f32-seqk/v1"

// QuantNumericsID is the NumericsID of models whose quantised weights are multiplied in
// integers, see quant.go.
const QuantNumericsID = NumericsID + "+q8-block32/v1"

// Backend implements engine.Backend and engine.Mover on the CPU.
type Backend struct {
	info  engine.Info
	step  *step
	arena *arena

	*intake.Queue
	done    chan struct{} // closed when run has returned
	closing error         // from freeing weights and arena; written before done is closed
}

var (
	_ engine.Backend = (*Backend)(nil)
	_ engine.Mover   = (*Backend)(nil)
)

// Open packs the weights of m, reserves the KV pool and starts the goroutines. m may be closed
// afterwards.
//
// Memory: the packed weights, a second copy of the embedding, and Pages·PageBytes of KV. A
// packed weight takes 4 bytes; 2 if it is bf16 or f16 and the path is not Portable; the size
// of its blocks if it is quantised.
//
// Open fails if the config is invalid or does not fit the model's heads, if the model's hidden
// size or head dim is no multiple of 16, if there is not enough memory, or if Config.ISA
// (COPPICE_CPU where that is empty) names a path that the machine can't run or that fails SelfTest.
// Without a name, Open takes the fastest path that passes SelfTest, and logs the faults of others.
func Open(m *model.Model, cfg Config) (*Backend, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	var left []error
	var err error
	if cfg.ISA, left, err = chooseISA(cfg.ISA, SelfTest); err != nil {
		return nil, err
	}
	for _, fault := range left {
		cmp.Or(cfg.Log, slog.New(slog.DiscardHandler)).Warn("a faster path computes wrongly on this processor", "cpu", levels.Processor(), "path", cfg.ISA, "error", fault)
	}
	c := m.Config()
	if c.Hidden%16 != 0 || c.HeadDim%16 != 0 {
		return nil, fmt.Errorf("cpu: hidden size %d and head dim %d, want multiples of 16", c.Hidden, c.HeadDim)
	}
	if err := checkKVType(cfg.KVType, c.HeadDim); err != nil {
		return nil, err
	}
	a, err := newArena(c, cfg)
	if err != nil {
		return nil, fmt.Errorf("cpu: KV pool: %w", err)
	}
	// No sequence is longer than the pool, so tables of positions end there.
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
			Name: "cpu", ModelID: m.ID() + "/kv-" + cfg.KVType.String(), NumericsID: numerics,
			Vocab: c.Vocab, MaxPositions: c.MaxPositions,
			PageTokens: cfg.PageTokens, NumPages: cfg.Pages, PageBytes: a.pageBytes(), KVType: cfg.KVType,
			HostBytes: a.store.Bytes() + step.w.mapped(),
			MaxSlots:  cfg.MaxSlots, MaxRows: cfg.MaxRows, MaxTokens: cfg.MaxTokens, MaxInflight: cfg.MaxInflight, MaxMasks: cfg.maxMasks(),
			MaxDrafts: cfg.maxDrafts(), HiddenSize: c.Hidden,
			Deterministic: true, Cost: stepCost(c, step, cfg), Capabilities: engine.AllCapabilities(),
		},
		arena: a,
		step:  step,
		done:  make(chan struct{}),
	}
	b.Queue = intake.New(&b.info, cfg.MaxMoves)
	go b.run()
	return b, nil
}

// Info returns the backend's sizes and identity. It never changes.
func (b *Backend) Info() engine.Info { return b.info }

// HostAlloc returns ordinary memory, because no device needs page-locked memory here. It fails if
// bytes is not positive.
func (b *Backend) HostAlloc(bytes int) ([]byte, error) {
	if bytes <= 0 {
		return nil, fmt.Errorf("cpu: HostAlloc of %d bytes", bytes)
	}
	return make([]byte, bytes), nil
}

// HostFree leaves the memory to the garbage collector.
func (b *Backend) HostFree([]byte) {}

// Close implements engine.Backend. It waits for the runner; only the first call returns the
// error of freeing memory.
func (b *Backend) Close() error {
	first := b.Queue.Close()
	<-b.done
	if first {
		return b.closing
	}
	return nil
}

// run executes jobs in the order of submission until the queue is closed. Its goroutine owns
// step and arena.
func (b *Backend) run() {
	defer close(b.done)
	for j := range b.Jobs() {
		res, err := b.execute(j)
		b.Finish(j, res, err)
	}
	b.closing = errors.Join(b.step.close(), b.arena.close())
}

// execute runs one batch or move and returns what Finish needs for its ticket: the result, or
// engine.ErrClosed after an abort.
func (b *Backend) execute(j *intake.Job) (*engine.Result, error) {
	if b.Aborted() {
		return nil, engine.ErrClosed
	}
	start := time.Now()
	var res *engine.Result
	if j.Batch != nil {
		var ok bool
		if res, ok = b.step.run(j.Batch, b.Abort()); !ok {
			return nil, engine.ErrClosed
		}
	} else {
		res = &engine.Result{}
		for i, p := range j.Move.Pages {
			if j.Move.To == kv.TierDevice {
				copy(b.arena.bytes(p), j.Memory[i])
			} else {
				copy(j.Memory[i], b.arena.bytes(p))
			}
		}
	}
	res.Stats.Nanos = time.Since(start).Nanoseconds()
	return res, nil
}
