package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/coppice-llm/coppice/bench/fleet"
	"github.com/coppice-llm/coppice/router"
)

// simFleetCmd is coppice sim fleet; see bench/fleet.
type simFleetCmd struct {
	Workers    []int              `default:"8" placeholder:"N" help:"Sizes of the fleet."`
	Traces     []string           `default:"chat" placeholder:"NAME" help:"Traces: chat, fewshot, tree, unique, groups:N (N prefixes), or a file with a recorded trace of the Mooncake project (JSON lines)."`
	Policies   []fleet.Policy     `sep:"," placeholder:"NAME" help:"Policies: latency (the router's default), 2025, 2026, credits, round-robin, random, least-loaded, prefix-hash. Default: all of these. buckets:N:turn and buckets:N:prefix:BLOCKS are latency within one of N buckets, as with route --buckets."`
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
	RestartAt  time.Duration      `name:"restart-at" default:"0s" help:"Time at which the first worker restarts with an empty cache; its requests are sent again. 0: never."`
	Weight     map[string]float64 `placeholder:"NAME=X" help:"Weights of the policies, for example itl=0.05;backlog=0. Default: the router's."`
	Time       bool               `help:"Also time the choices. This column differs from run to run."`
	tableFlags
}

// Run is called by kong.
func (c *simFleetCmd) Run(ctx context.Context) error {
	cfg := fleet.CompareConfig{Workers: c.Workers, Policies: c.Policies, Load: c.Load / 100, Requests: c.Requests, Seed: c.Seed, Base: fleet.Config{
		Kind: c.Worker, KVTokens: c.KVTokens, StepTokens: c.StepTokens, EventDelay: c.EventDelay, Predict: c.Predict, PredictRequests: c.PredictReq, RestartAt: c.RestartAt,
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
