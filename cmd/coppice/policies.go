package main

import (
	"context"
	"errors"

	"github.com/coppice-llm/coppice/bench"
)

// policiesCmd is coppice bench policies; see bench.ComparePolicies.
type policiesCmd struct {
	Requests   int       `default:"10000" help:"Requests of each generated trace."`
	Seed       uint64    `default:"7" help:"Seed of the generated traces: the same seed gives the same traces on every machine."`
	PageTokens int       `name:"page-tokens" default:"16" min:"1" help:"Tokens per page. More than 16 hides sharing in Mooncake's traces."`
	Mooncake   []string  `type:"path" placeholder:"FILE" help:"Recorded trace of the Mooncake project, in JSON lines. Repeat the flag for several."`
	Policy     []string  `placeholder:"NAME" help:"Policies to compare. Default: all but priority, which no trace has."`
	Room       []float64 `default:"5,10,25,50" above:"0" max:"100" help:"Capacities, in percent of the working set."`
	JSON       bool      `name:"json" xor:"format" help:"Print one JSON object instead of the table."`
	Markdown   bool      `xor:"format" help:"Print the table in Markdown."`
}

// Run is called by kong.
func (c *policiesCmd) Run(ctx context.Context) error {
	if len(c.Room) == 0 {
		return errors.New("--room is empty, want percentages")
	}
	cfg := bench.PolicyConfig{PageTokens: c.PageTokens, Policies: c.Policy}
	for _, percent := range c.Room {
		cfg.Shares = append(cfg.Shares, percent/100)
	}
	traces, err := loadTraces(c.Requests, c.Seed, traceTokens(), c.Mooncake)
	if err != nil {
		return err
	}
	return report(cfg.Steps(len(traces)), "replays", "", c.JSON, c.Markdown, func(progress func()) (*bench.PolicyTable, error) {
		return bench.ComparePolicies(ctx, traces, cfg, progress)
	})
}
