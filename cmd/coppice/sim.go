package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coppice-llm/coppice/bench/fleet"
	"github.com/coppice-llm/coppice/internal/terminal"
	"github.com/coppice-llm/coppice/router"
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

// simFleetCmd is coppice sim fleet; see bench/fleet.
type simFleetCmd struct {
	Workers    []int              `default:"8" placeholder:"N" help:"Sizes of the fleet."`
	Traces     []string           `default:"chat" placeholder:"NAME" help:"Traces: chat, fewshot, tree, unique, groups:N (N prefixes), or a file with a recorded trace of the Mooncake project (JSON lines)."`
	Policies   []fleet.Routing    `sep:"," placeholder:"NAME" help:"Policies: latency (the router's default), 2025, 2026, credits, round-robin, random, least-loaded, prefix-hash. Default: all of these. buckets:N:turn and buckets:N:prefix:BLOCKS are latency within one of N buckets, as with route --buckets."`
	Worker     fleet.Kind         `default:"ours" placeholder:"KIND" help:"Kind of workers: ours (our scheduler), or mocker (NVIDIA Dynamo's simulated worker)."`
	Requests   int                `placeholder:"N" min:"1" help:"Requests per run. Default: 500 per worker (1500 for a recorded trace), up to 12000, but at least 48 per worker."`
	Load       float64            `default:"65" above:"0" placeholder:"PERCENT" help:"Rate of arrivals, in percent of the fleet's capacity under round-robin."`
	Seed       uint64             `default:"7" help:"Seed of traces and choices: the same seed gives the same table."`
	Profile    string             `default:"h100" placeholder:"NAME" help:"Simulated device of our workers: h200, h100, a100, cpu2, or a JSON file of coppice calibrate."`
	KVTokens   int                `name:"kv-tokens" placeholder:"N" min:"1" help:"Size of a worker's KV pool in tokens. Default: 65536, and 262144 for recorded traces."`
	StepTokens int                `name:"step-tokens" default:"2048" min:"1" help:"Token budget of a worker's step."`
	EventDelay time.Duration      `name:"event-delay" default:"0s" help:"Delay between a step and the arrival of its cache events at the router."`
	Predict    time.Duration      `default:"0s" help:"How long the router counts a prompt as cached at the worker that got it, in addition to events."`
	PredictReq bool               `name:"predict-requests" help:"Predict as coppice route does: a prompt counts as cached at its worker until its first token."`
	Gateways   int                `default:"1" min:"1" max:"64" help:"Number of gateways, which get the requests in turn and tell each other their reservations."`
	Lag        time.Duration      `default:"0s" help:"Delay of all messages to and from the last gateway: reservations, and workers' cache events."`
	RestartAt  time.Duration      `name:"restart-at" default:"0s" help:"Time at which the first worker restarts with an empty cache; its requests are sent again. 0: never."`
	Weight     map[string]float64 `placeholder:"NAME=X" help:"Weights of the policies, for example itl=0.05;backlog=0. Default: the router's."`
	Decisions  string             `type:"path" placeholder:"FILE" help:"Score the policies on the decisions that coppice route --record FILE wrote, in place of simulated traces: times to first tokens, and the regret of each choice, by a model of the workers that is fitted to the recording."`
	Each       bool               `help:"With --decisions: print the regret of each choice."`
	Time       bool               `help:"Also time the choices. This column differs from run to run."`
	tableFlags
}

// Run is called by kong.
func (c *simFleetCmd) Run(ctx context.Context) error {
	if c.Decisions != "" {
		return c.score(ctx)
	}
	if c.Each {
		return errors.New("--each is for --decisions")
	}
	cfg := fleet.CompareConfig{Workers: c.Workers, Policies: c.Policies, Load: c.Load / 100, Requests: c.Requests, Seed: c.Seed, Base: fleet.Config{
		Kind: c.Worker, KVTokens: c.KVTokens, StepTokens: c.StepTokens, EventDelay: c.EventDelay, Gateways: c.Gateways, Lag: c.Lag, Predict: c.Predict, PredictRequests: c.PredictReq, RestartAt: c.RestartAt,
	}}
	if c.Predict > 0 && c.PredictReq {
		return errors.New("--predict and --predict-requests exclude each other: give one of them")
	}
	if len(c.Weight) > 0 {
		cfg.Base.Weights = router.DefaultWeights()
	}
	for name, value := range c.Weight {
		if err := cfg.Base.Weights.Set(name, value); err != nil {
			return fmt.Errorf("--weight: %w", err)
		}
	}
	if c.Time {
		cfg.Base.Clock = time.Now
	}
	var err error
	if cfg.Base.Device, err = openProfile(c.Profile); err != nil {
		return err
	}
	if cfg.Sources, err = fleetSources(c.Traces); err != nil {
		return err
	}
	return report(cfg.Steps(), "runs", "", c.JSON, c.Markdown, func(progress func()) (*fleet.Table, error) {
		return fleet.Compare(ctx, cfg, func(string) { progress() })
	})
}

// fleetSources returns the traces of these names. A name with a path separator, or one that
// ends in .jsonl, is a file.
func fleetSources(names []string) ([]fleet.Source, error) {
	sources := []fleet.Source{} // not nil, which would mean the default
	for _, name := range names {
		s := fleet.Source{Name: name}
		if filepath.Ext(name) == ".jsonl" || filepath.Base(name) != name {
			var err error
			if s.Recording, err = fleet.OpenMooncake(name); err != nil {
				return nil, fmt.Errorf("--traces: %w", err)
			}
		}
		sources = append(sources, s)
	}
	return sources, nil
}
