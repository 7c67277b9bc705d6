package cuda

import (
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/engine/cuda/kernels"
	"github.com/coppice-llm/coppice/engine/internal/intake"
	"github.com/coppice-llm/coppice/engine/model"
	"github.com/coppice-llm/coppice/kv"
)

// NumericsID names the order of summation; it changes whenever bits may change.
const NumericsID = "cuda/mma16816-k8-kv256/v2"

// Backend is the CUDA backend, see engine.Backend.
type Backend struct {
	info engine.Info
	dev  *device

	*intake.Queue
	watch   *watch
	queued  [streams]chan *job // by stream: jobs on the device, for the waiting goroutines
	waiting atomic.Int32       // number of waiting goroutines
	done    chan struct{}      // closed when all waiting goroutines have ended
	closing error              // result of closing the device, set before done is closed
}

// The streams of a device. The jobs of one stream end in order.
const (
	computes = iota
	movesOut
	movesIn
	streams
)

// stream returns the stream that the job is queued on.
func (j *job) stream() int {
	switch {
	case j.Batch != nil:
		return computes
	case j.Move.To == kv.TierDevice:
		return movesIn
	}
	return movesOut
}

// job is a queued job together with its resources on the device.
type job struct {
	*intake.Job
	place *place
	from  chan *place // where place returns to
	plan  outcome
}

var (
	_ engine.Backend = (*Backend)(nil)
	_ engine.Mover   = (*Backend)(nil)
)

// Open uploads the weights of m, reserves the pool and starts the goroutines. m may be closed
// afterwards. Open first checks the device: the error wraps cudrv.ErrNoDevice if there is no such
// device, ErrOld if it or its driver is too old, and ErrMemory if weights, buffers and pool do not
// fit. Nothing is uploaded in these cases.
func Open(m *model.Model, cfg Config) (*Backend, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	c := m.Config()
	if err := supported(c); err != nil {
		return nil, err
	}
	if err := Usable(cfg.Driver, cfg.Device, c.HeadDim); err != nil {
		return nil, err
	}
	d, err := newDevice(m, cfg)
	if err != nil {
		return nil, err
	}
	cfg = d.cfg // Pages is known now
	properties, err := cfg.Driver.Properties(cfg.Device)
	if err != nil {
		return nil, errors.Join(err, d.ctx.Close())
	}
	b := &Backend{
		info: engine.Info{
			Name: "cuda", ModelID: m.ID() + "/bf16", NumericsID: NumericsID,
			Vocab: c.Vocab, MaxPositions: c.MaxPositions,
			PageTokens: cfg.PageTokens, NumPages: cfg.Pages, PageBytes: 2 * d.pageElements, KVType: kv.BF16,
			MaxSlots: cfg.MaxSlots, MaxRows: cfg.MaxRows, MaxTokens: cfg.MaxTokens, MaxInflight: cfg.MaxInflight, MaxMasks: cfg.maxMasks(),
			MaxDrafts:     min(64, cfg.MaxTokens-1),
			Deterministic: true, Capabilities: engine.AllCapabilities(), Cost: stepCost(properties.Name, c, d.w.layers[0].gateUp[0].form),
		},
		dev:  d,
		done: make(chan struct{}),
	}
	b.Queue = intake.New(&b.info, cfg.MaxMoves)
	b.watch = newWatch(cfg.StepTimeout, b.giveUp)
	b.waiting.Store(streams)
	for i := range b.queued {
		b.queued[i] = make(chan *job, cfg.MaxInflight+cfg.MaxMoves)
		go b.wait(b.queued[i])
	}
	go b.launch()
	return b, nil
}

// Info implements engine.Backend.
func (b *Backend) Info() engine.Info { return b.info }

// HostAlloc returns pinned host memory. It fails if bytes is not positive, or with ErrStuck if the
// device does not respond.
func (b *Backend) HostAlloc(bytes int) ([]byte, error) {
	if bytes <= 0 {
		return nil, fmt.Errorf("cuda: HostAlloc of %d bytes", bytes)
	}
	if b.watch.isStuck() {
		return nil, lostError("host memory", ErrStuck)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := b.dev.ctx.Bind(); err != nil {
		return nil, err
	}
	return b.dev.ctx.HostAlloc(bytes)
}

// HostFree frees memory of HostAlloc.
func (b *Backend) HostFree(m []byte) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if !b.watch.isStuck() && b.dev.ctx.Bind() == nil {
		_ = b.dev.ctx.HostFree(m) // after Close the context is gone, and its memory with it
	}
}

// Close implements engine.Backend. It waits until the device has completed what is queued on it: until
// then the device uses host memory, also the caller's. The tickets of that work end with
// engine.ErrClosed. Close fails with ErrStuck if the device does not respond; its memory then stays
// allocated.
func (b *Backend) Close() error {
	first := b.Queue.Close()
	if b.watch.isStuck() {
		<-b.watch.ended
		return lostError("close", ErrStuck)
	}
	select {
	case <-b.done:
	case <-b.watch.ended:
		return lostError("close", ErrStuck)
	}
	if first {
		return b.closing
	}
	return nil
}

// finish reads the result of a job that ended without an error, gives the job's place back to
// b.places and then completes its ticket. It does nothing if the watch has completed the ticket
// already because the device did not respond in time: then the batch is its caller's again.
func (b *Backend) finish(j *job, err error) {
	if !b.watch.release(j) {
		return
	}
	var res *engine.Result
	if err == nil && j.Batch != nil {
		res = b.result(j)
	}
	if j.Move != nil {
		b.dev.pool.End(uint64(j.Move.ID))
	}
	if j.place != nil {
		j.from <- j.place
	}
	b.Finish(j.Job, res, err)
}

// giveUp ends the given jobs with ErrStuck, and then every later job until Close. The goroutines
// that wait for the device continue when it responds.
func (b *Backend) giveUp(jobs []*job) {
	err := lostError("step", ErrStuck)
	for _, j := range jobs {
		b.Finish(j.Job, nil, err)
	}
	for j := range b.Jobs() {
		b.Finish(j, nil, err)
	}
}

// stepCost estimates the duration of a step on the device of that name, from the computed limits of
// its launches; zero for unknown devices. f is the form of most weights. The scheduler corrects the estimate by
// measured steps.
func stepCost(name string, c *model.Config, f *kernels.Form) engine.StepCost {
	gpu, ok := kernels.GPUNamed(name)
	if !ok {
		return engine.StepCost{}
	}
	s := kernels.Shape{Hidden: c.Hidden, FFN: c.FFN, Layers: c.Layers, Heads: c.Heads, KVHeads: c.KVHeads, HeadDim: c.HeadDim, Vocab: c.Vocab, Weights: f}
	decode := func(rows, context int) float64 { return kernels.Seconds(s.Decode(rows, context), gpu) }
	const rows, context, prompt = 64, 1024, 4096
	one := decode(1, 1)
	row := (decode(rows, 1) - one) / (rows - 1)
	x := engine.StepCost{Step: one - row, Row: row, Draft: row, Context: (decode(rows, 2*context) - decode(rows, context)) / (rows * context)}
	// A prompt of 2n tokens takes twice the time of one of n tokens, plus the time of n² more pairs.
	short, long := kernels.Seconds(s.Prefill(prompt), gpu), kernels.Seconds(s.Prefill(2*prompt), gpu)
	x.Pair = max(0, (long-2*short+one)/(prompt*prompt))
	x.Token = (short - one - x.Pair*prompt*prompt/2) / prompt
	return x
}
