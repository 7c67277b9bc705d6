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
	Traces     []string           `default:"chat" placeholder:"NAME" help:"Traces: chat, fewshot, tree, unique, groups:N (N prefixes), or a recorded one of the Mooncake project as a file of JSON lines."`
	Policies   []fleet.Policy     `sep:"," placeholder:"NAME" help:"Policies: latency (the default of the router), 2025, 2026, credits, round-robin, random, least-loaded, prefix-hash. Default: all of these. buckets:N:turn and buckets:N:prefix:BLOCKS are latency in one of N buckets of workers, as route --buckets has them."`
	Worker     fleet.Kind         `default:"ours" placeholder:"KIND" help:"What the workers are: ours, or mocker, as NVIDIA Dynamo has it."`
	Requests   *int               `placeholder:"N" min:"1" help:"Requests of each run. Default: 500 a worker, 1500 of a recorded trace, up to 12000 and beyond that 48 a worker."`
	Load       float64            `default:"65" placeholder:"PERCENT" help:"Rate of arrivals, of what the fleet can bear under round robin."`
	Seed       uint64             `default:"7" help:"Of traces and choices: the same seed gives the same table."`
	Profile    string             `default:"h100" placeholder:"NAME" help:"Device of our workers: h200, h100, a100 or cpu2, or a JSON file, as coppice calibrate writes."`
	KVTokens   *int               `name:"kv-tokens" placeholder:"N" min:"1" help:"KV pool of a worker, in tokens. Default: 65536, and 262144 for recorded traces."`
	StepTokens int                `name:"step-tokens" default:"2048" min:"1" help:"Tokens of a worker's step."`
	EventDelay time.Duration      `name:"event-delay" default:"0s" help:"How long after a step the router hears of its cache events."`
	Predict    time.Duration      `default:"0s" help:"How long the router takes a prompt to be where it was sent, beside what events say."`
	PredictReq bool               `name:"predict-requests" help:"Have the router predict by its requests, as coppice route does: each is taken to be where it was sent until its first token."`
	RestartAt  time.Duration      `name:"restart-at" default:"0s" help:"When the first worker loses all it has, and its requests come anew. 0: never."`
	Weight     map[string]float64 `placeholder:"NAME=X" help:"Weights of the policies, as itl=0.05;backlog=0. Default: the router's."`
	Time       bool               `help:"Time the choices too: a column that is not the same in every run."`
	JSON       bool               `name:"json" xor:"format" help:"Print one JSON object instead of the table."`
	Markdown   bool               `xor:"format" help:"Print the table in Markdown."`
}

// Help is printed by kong under the summary.
func (*simFleetCmd) Help() string {
	return `A router before a fleet of workers, all on one virtual clock: every policy of
routing sees the same requests at the same times. The workers run the scheduler
that production has, or Dynamo's mocker, and tell the router's index what their
caches store and drop. The same flags give the same table.

Examples:
  coppice sim fleet
  coppice sim fleet --workers 8,64,512 --traces chat,fewshot,unique
  coppice sim fleet --traces ./conversation.jsonl --policies latency,2025,2026
  coppice sim fleet --workers 64 --traces chat,tree --policies latency,buckets:4:turn,buckets:4:prefix:64
  coppice sim fleet --load 90 --event-delay 50ms --time
  coppice sim fleet --worker mocker --json`
}

// Run is called by kong.
func (c *simFleetCmd) Run(ctx context.Context) error {
	cfg := fleet.CompareConfig{Workers: c.Workers, Policies: c.Policies, Load: c.Load / 100, Seed: c.Seed, Base: fleet.Config{
		Kind: c.Worker, StepTokens: c.StepTokens, EventDelay: c.EventDelay, Predict: c.Predict, PredictRequests: c.PredictReq, RestartAt: c.RestartAt,
	}}
	if c.Requests != nil {
		cfg.Requests = *c.Requests
	}
	if c.KVTokens != nil {
		cfg.Base.KVTokens = *c.KVTokens
	}
	if c.Predict > 0 && c.PredictReq {
		return errors.New("--predict and --predict-requests are two ways to predict: want one of them")
	}
	if !(c.Load > 0) {
		return fmt.Errorf("--load is %v %%, want above 0", c.Load)
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
	table, err := withProgress(cfg.Steps(), "runs", func(progress func()) (*fleet.Table, error) {
		return fleet.Compare(ctx, cfg, func(string) { progress() })
	})
	if err != nil {
		return err
	}
	return printReport(table, c.JSON, c.Markdown)
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
