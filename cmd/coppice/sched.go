package main

import (
	"context"
	"fmt"

	"github.com/coppice-llm/coppice/bench"
	"github.com/coppice-llm/coppice/scheduler"
)

// schedCmd is coppice bench sched; see bench.PlaySched.
type schedCmd struct {
	Rows         int              `default:"256" min:"1" help:"Number of running requests, kept constant."`
	Queue        int              `default:"0" help:"Number of waiting requests, kept constant."`
	Policy       scheduler.Policy `default:"lpm" help:"Order of waiting requests: fcfs, lpm, dfs-weight, lof, hrrn, random, priority or dlpm."`
	PromptTokens int              `name:"prompt-tokens" default:"1024" min:"1" help:"Tokens of a prompt; half of them are one of 16 shared prefixes."`
	OutputTokens int              `name:"output-tokens" default:"128" min:"1" help:"Tokens of an answer."`
	Requests     int              `placeholder:"4096" min:"1" help:"Number of requests to measure. Default: 16 per row, at least 1000."`
	PageTokens   int              `name:"page-tokens" default:"16" min:"1" help:"Tokens per page, a power of two."`
	Inflight     int              `default:"1" min:"1" help:"Plans in flight."`
	Seed         uint64           `default:"7" help:"Seed of the prompts."`
	JSON         bool             `name:"json" help:"Print one JSON object instead of the table."`
}

// Run is called by kong.
func (c *schedCmd) Run(ctx context.Context) error {
	cfg := bench.SchedConfig{
		Rows: c.Rows, Queue: c.Queue, Policy: c.Policy, Requests: c.Requests, PromptTokens: c.PromptTokens, OutputTokens: c.OutputTokens,
		PageTokens: c.PageTokens, Inflight: c.Inflight, Seed: c.Seed,
	}
	heading := fmt.Sprintf("%d running and %d waiting requests of %d + %d tokens under %v, pages of %d tokens, %d plans at a time",
		c.Rows, c.Queue, c.PromptTokens, c.OutputTokens, c.Policy, c.PageTokens, c.Inflight)
	return report(cfg.Steps(), "requests", heading, c.JSON, false, func(progress func()) (*bench.SchedSummary, error) {
		return bench.PlaySched(ctx, cfg, progress)
	})
}
