package main

import (
	"context"
	"fmt"

	"github.com/coppice-llm/coppice/bench"
	"github.com/coppice-llm/coppice/scheduler"
)

// schedCmd is coppice bench sched; see bench.PlaySched.
type schedCmd struct {
	bench.SchedConfig
	Policy scheduler.Policy `default:"lpm" help:"Order of waiting requests: ${policies}."`
	Seed   uint64           `default:"7" help:"Seed of the prompts."`
	JSON   bool             `name:"json" help:"Print one JSON object instead of the table."`
}

// Run is called by kong.
func (c *schedCmd) Run(ctx context.Context) error {
	cfg := c.SchedConfig
	cfg.Policy, cfg.Seed = c.Policy, c.Seed
	heading := fmt.Sprintf("%d running and %d waiting requests of %d + %d tokens under %v, pages of %d tokens, %d plans at a time",
		c.Rows, c.Queue, c.PromptTokens, c.OutputTokens, c.Policy, c.PageTokens, c.Inflight)
	return report(cfg.Steps(), "requests", heading, c.JSON, false, func(progress func()) (*bench.SchedSummary, error) {
		return bench.PlaySched(ctx, cfg, progress)
	})
}
