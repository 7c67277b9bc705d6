package main

import (
	"context"
	"errors"

	"github.com/coppice-llm/coppice/bench"
)

// curveCmd is coppice bench curve; see bench.CompareCurve.
type curveCmd struct {
	Requests   int       `default:"10000" help:"Requests of each generated trace."`
	Seed       uint64    `default:"7" help:"Seed of the generated traces: the same seed gives the same traces on every machine."`
	PageTokens int       `name:"page-tokens" default:"16" min:"1" help:"Tokens per page. More than 16 hides sharing in Mooncake's traces."`
	Mooncake   []string  `type:"path" placeholder:"FILE" help:"Recorded trace of the Mooncake project, in JSON lines. Repeat the flag for several."`
	Samples    int       `default:"16384" min:"1" help:"Number of blocks that the live curve tracks, about 130 bytes each."`
	Room       float64   `default:"10" above:"0" max:"100" help:"Capacity of the cache with the live curve, in percent of the working set."`
	Sizes      []float64 `default:"0.25,0.5,1,2,4,8" help:"Capacities to predict, as multiples of that capacity."`
	JSON       bool      `name:"json" xor:"format" help:"Print one JSON object instead of the table."`
	Markdown   bool      `xor:"format" help:"Print the table in Markdown."`
}

// Run is called by kong.
func (c *curveCmd) Run(ctx context.Context) error {
	if len(c.Sizes) == 0 {
		return errors.New("--sizes is empty, want multiples of the capacity")
	}
	traces, err := loadTraces(c.Requests, c.Seed, traceTokens(), c.Mooncake)
	if err != nil {
		return err
	}
	cfg := bench.CurveConfig{PageTokens: c.PageTokens, Samples: c.Samples, BaseShare: c.Room / 100, Factors: c.Sizes}
	return report(cfg.Steps(len(traces)), "replays", "", c.JSON, c.Markdown, func(progress func()) (*bench.CurveTable, error) {
		return bench.CompareCurve(ctx, traces, cfg, progress)
	})
}
