package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/coppice-llm/coppice/internal/terminal"
	"github.com/coppice-llm/coppice/scheduler/schedtest"
)

// simCmd is coppice sim; see scheduler/schedtest.
type simCmd struct {
	Seed   uint64 `default:"1" help:"Seed of the world, its load and its faults."`
	Steps  int    `default:"300" min:"1" help:"Number of steps during which requests arrive."`
	Faults bool   `help:"Add faults: slow steps, failing rows, late answers of the pool, and in some worlds a lost device."`
	Fair   bool   `help:"Use the policy dlpm and tenants that send one request at a time, many, or only now and then."`
	Tiers  bool   `help:"Give every world with a cache tiers of KV below the device. Default: one world in three, with --faults one in two."`
	Seeds  int    `default:"1" min:"1" help:"Number of worlds, with seeds from --seed on. They run on all processors."`
	Twin   bool   `help:"Run each world twice and compare the two runs step by step."`
	Trace  bool   `help:"Print every step to standard error. For one seed."`
}

// mostFailures is the number of failing seeds after which no more seeds are played.
const mostFailures = 10

// Run is called by kong.
func (c *simCmd) Run(ctx context.Context) error {
	if c.Trace && c.Seeds > 1 {
		return errors.New("--trace is for one seed: omit --seeds")
	}
	if c.Seeds > 1 {
		return c.playMany(ctx, c.play)
	}
	report, err := c.play(c.Seed)
	if err != nil {
		return err
	}
	fmt.Fprint(terminal.Out(), report)
	return nil
}

// play runs the world of one seed; with --twin twice, to compare both runs.
func (c *simCmd) play(seed uint64) (schedtest.Report, error) {
	o := schedtest.Options{Seed: seed, Steps: c.Steps, Faults: c.Faults, Fair: c.Fair, Tiers: c.Tiers}
	if c.Trace {
		o.Trace = terminal.Err()
	}
	if c.Twin {
		return schedtest.RunTwin(o)
	}
	return schedtest.Run(o)
}

// playMany plays seeds on all processors; each world runs in one goroutine.
func (c *simCmd) playMany(ctx context.Context, play func(seed uint64) (schedtest.Report, error)) error {
	digests, errs := make([]uint64, c.Seeds), make([]error, c.Seeds)
	var begun, failed, steps, requests, tokens atomic.Int64
	progress, finish := progressBar(c.Seeds, "seeds")
	var workers sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), c.Seeds) {
		workers.Go(func() {
			for ctx.Err() == nil && failed.Load() < mostFailures {
				i := begun.Add(1) - 1
				if i >= int64(c.Seeds) {
					return
				}
				report, err := play(c.Seed + uint64(i))
				if digests[i], errs[i] = report.Digest, err; err != nil {
					failed.Add(1)
				}
				steps.Add(int64(len(report.Steps)))
				requests.Add(int64(report.Requests))
				tokens.Add(int64(report.RanTokens))
				progress()
			}
		})
	}
	workers.Wait()
	finish()
	if n := failed.Load(); n > 0 {
		return fmt.Errorf("%d of %d seeds fail:\n%w", n, min(begun.Load(), int64(c.Seeds)), errors.Join(errs...))
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	h := fnv.New64a()
	for _, d := range digests {
		h.Write(binary.LittleEndian.AppendUint64(nil, d))
	}
	fmt.Fprintf(terminal.Out(), "seeds:    %d to %d, no check failed\n", c.Seed, c.Seed+uint64(c.Seeds)-1)
	fmt.Fprintf(terminal.Out(), "steps:    %d, %d requests, %d tokens run\n", steps.Load(), requests.Load(), tokens.Load())
	fmt.Fprintf(terminal.Out(), "digest:   %016x (FNV-1a over the seeds' digests)\n", h.Sum64())
	return nil
}
