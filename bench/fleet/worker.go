package fleet

import (
	"fmt"
	"slices"
	"time"

	"github.com/coppice-llm/coppice/bench"
	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/internal/enum"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/scheduler"
)

// Request is a prompt with its hashes and its predetermined answer.
type Request struct {
	ID           int
	Tokens       []kv.Token     // of the prompt
	Locals       []kv.LocalHash // of the prompt's full blocks of BlockTokens
	Hashes       []kv.BlockHash // chained hashes of the same blocks
	Answer       []kv.Token     // the output: len = OutputTokens
	OutputTokens int
}

// Worker is a simulated server of the fleet. It reads no clock: virtual time comes in as now. A
// pass is one step of the device and the handling of its result.
type Worker interface {
	// Submit adds a request, which must not change until it has ended. An error means
	// that the worker refuses it.
	Submit(now time.Duration, r *Request) error
	// Wake returns the end of the pass in progress; ok is false if there is none.
	Wake() (at time.Duration, ok bool)
	// Pass ends the pass in progress, appends its outcome to out, and begins the next
	// pass. now must be the time that Wake returns.
	Pass(now time.Duration, out *Report) error
	// Usage returns the current load.
	Usage() Usage
}

// Report is the outcome of a pass.
type Report struct {
	Tokens   []int      // request IDs, one for each output token
	Ended    []int      // IDs of the requests that ended
	Events   []kv.Event // cache events in order, published at the end of the pass; see cloned
	Computed int        // prompt tokens computed, including again after a preemption
	Cached   int        // prompt tokens found in the cache; counted once for a request
}

// reset empties a report and keeps its memory.
func (r *Report) reset() {
	clear(r.Events)
	*r = Report{Tokens: r.Tokens[:0], Ended: r.Ended[:0], Events: r.Events[:0]}
}

// cloned returns a deep copy of events, whose slices the worker may reuse in its next pass.
func cloned(events []kv.Event) []kv.Event {
	all := make([]kv.Event, len(events))
	for i, e := range events {
		e.Blocks, e.Hashes = slices.Clone(e.Blocks), slices.Clone(e.Hashes)
		all[i] = e
	}
	return all
}

// Usage is the load of a worker.
type Usage struct {
	UsedBlocks int // blocks of the KV pool that running requests hold
	Waiting    int // requests not admitted yet
	Running    int
}

// Kind selects the implementation of workers.
type Kind uint8

// The kinds of worker.
const (
	Ours   Kind = iota // our scheduler with a device of engine/sim's cost model
	Mocker             // NVIDIA Dynamo's mocker
)

var kinds = enum.New[Kind]("fleet", "worker", "ours", "mocker")

func (k Kind) String() string { return kinds.Name(k) }

// UnmarshalText accepts the names that String returns.
func (k *Kind) UnmarshalText(text []byte) error { return kinds.Read(k, text) }

// vocabulary is the size of the workers' vocabulary: 2^31, so that the generated tokens of
// different streams are hardly ever equal.
const vocabulary = 1 << 31

// ours is the production scheduler with a device that has no memory: a step takes the
// time of engine/sim's cost model, and the output is Request.Answer. sim.Backend would
// also keep a hash for each token of the pool and check each token read, which would
// take gigabytes for a fleet.
type ours struct {
	cfg  *Config
	info engine.Info
	s    *scheduler.Scheduler

	open   map[scheduler.RequestID]*Request
	plan   *scheduler.Plan // in flight; nil if idle
	ends   time.Duration   // end of plan's step
	result engine.Result
	out    []scheduler.Output
}

// newOurs makes a worker with our scheduler, whose queue has room for this many requests. The
// error is the scheduler's and names the bad sizes.
func newOurs(cfg *Config, requests int) (Worker, error) {
	w := &ours{cfg: cfg, open: make(map[scheduler.RequestID]*Request)}
	w.info = engine.Info{
		Name: "fleet", Vocab: vocabulary, MaxPositions: cfg.KVTokens, PageTokens: BlockTokens,
		NumPages: kv.FloorPages(cfg.KVTokens, BlockTokens), PageBytes: BlockTokens * kvTokenBytes(&cfg.Device.Model), MaxSlots: cfg.MaxRunning, MaxRows: cfg.MaxRunning,
		MaxTokens: cfg.StepTokens, MaxInflight: 2, Cost: cfg.Device.Cost(),
	}
	var err error
	w.s, err = bench.NewScheduler(scheduler.Config{
		StepTokens: cfg.StepTokens, MaxRunning: cfg.MaxRunning, MaxQueued: max(1, requests), MaxInflight: 1,
		BlockTokens: BlockTokens, Events: true,
	}, w.info)
	if err != nil {
		return nil, fmt.Errorf("fleet: worker of %d KV tokens: %w", cfg.KVTokens, err)
	}
	return w, nil
}

// Submit implements Worker.
func (w *ours) Submit(now time.Duration, r *Request) error {
	id := scheduler.RequestID(r.ID)
	if err := w.s.Add(now, scheduler.Request{ID: id, Prompt: r.Tokens, MaxTokens: r.OutputTokens}); err != nil {
		return fmt.Errorf("fleet: request %d: %w", r.ID, err)
	}
	w.open[id] = r
	if w.plan == nil {
		w.begin(now)
	}
	return nil
}

// begin plans a step at now and computes its end. If there is nothing to run, w.plan is nil
// afterwards.
func (w *ours) begin(now time.Duration) {
	if w.plan = w.s.Next(now); w.plan != nil {
		w.ends = now + w.cfg.Device.Step(&w.plan.Batch, w.info.PageBytes) + w.cfg.Device.Host(len(w.plan.Batch.Rows))
	}
}

// Wake implements Worker.
func (w *ours) Wake() (time.Duration, bool) { return w.ends, w.plan != nil }

// Pass implements Worker.
func (w *ours) Pass(now time.Duration, out *Report) error {
	p := w.plan
	w.result.Seq, w.result.Out = p.Batch.Seq, w.result.Out[:0]
	for i := range p.Batch.Rows {
		row := &p.Batch.Rows[i]
		if !row.Deferred {
			out.Computed += len(row.Tokens)
		}
		if row.Sample {
			id, _ := p.Request(i)
			r := w.open[id]
			w.result.Out = append(w.result.Out, engine.RowOut{Row: i, Token: r.Answer[row.SampleIndex]})
		}
	}
	w.out = w.s.Complete(now, p, &w.result, w.out[:0])
	for i := range w.out {
		if err := w.take(&w.out[i], out); err != nil {
			return err
		}
	}
	w.begin(now)
	out.Events = w.s.TakeEvents(out.Events)
	return nil
}

// take adds output o of the scheduler to the report out. It is an error if a request ends for
// another reason than Length.
func (w *ours) take(o *scheduler.Output, out *Report) error {
	id := int(o.Request)
	if o.Sampled {
		out.Tokens = append(out.Tokens, id)
	}
	e := &o.Ending
	switch e.Reason {
	case scheduler.NotEnded:
		return nil
	case scheduler.Length:
	default:
		return fmt.Errorf("fleet: request %d ended by %v: %w", id, e.Reason, e.Err)
	}
	delete(w.open, o.Request)
	out.Cached += e.CachedTokens
	out.Ended = append(out.Ended, id)
	return nil
}

// Usage implements Worker.
func (w *ours) Usage() Usage {
	m := w.s.Metrics()
	return Usage{UsedBlocks: m.PoolPages - m.IdlePages - m.Cache.EvictablePages, Waiting: m.Waiting, Running: m.Running}
}
