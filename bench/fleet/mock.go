package fleet

import (
	"fmt"
	"slices"
	"time"

	"github.com/coppice-llm/coppice/bench/fleet/mocker"
	"github.com/coppice-llm/coppice/kv"
)

// mock makes a worker of package mocker a Worker of the fleet.
type mock struct {
	*mocker.Worker
	report mocker.Report
}

// newMocker makes a worker that behaves as Dynamo's mocker, with upstream's timing. Its queue
// has room for this many requests. The error lists the faults of cfg.
func newMocker(cfg *Config, requests int) (Worker, error) {
	w, err := mocker.New(mocker.Config{
		Blocks: kv.FloorPages(cfg.KVTokens, BlockTokens), BlockTokens: BlockTokens, MaxSeqs: cfg.MaxRunning,
		MaxBatchedTokens: cfg.StepTokens, MaxWaiting: max(1, requests),
	})
	if err != nil {
		return nil, fmt.Errorf("fleet: worker of %d KV tokens: %w", cfg.KVTokens, err)
	}
	return &mock{Worker: w}, nil
}

// Submit implements Worker.
func (w *mock) Submit(now time.Duration, r *Request) error {
	return w.Worker.Submit(now, &mocker.Request{
		ID: r.ID, Tokens: r.Tokens, Locals: r.Locals, Hashes: r.Hashes, OutputTokens: r.OutputTokens, Output: r.Answer,
	})
}

// Pass implements Worker.
func (w *mock) Pass(now time.Duration, out *Report) error {
	r := &w.report
	*r = mocker.Report{Tokens: out.Tokens, Ended: out.Ended, Events: out.Events, Preempted: r.Preempted[:0]}
	err := w.Worker.Pass(now, r)
	out.Tokens, out.Ended, out.Events = r.Tokens, r.Ended, r.Events
	out.Computed += r.Computed + r.Recomputed
	out.Cached += r.Cached
	return err
}

// Usage implements Worker.
func (w *mock) Usage() Usage { return Usage(w.Worker.Usage()) }

// keep returns a deep copy of events, whose slices the worker reuses in its next pass.
func keep(events []kv.Event) []kv.Event {
	kept := make([]kv.Event, len(events))
	for i, e := range events {
		e.Blocks, e.Hashes = slices.Clone(e.Blocks), slices.Clone(e.Hashes)
		kept[i] = e
	}
	return kept
}
