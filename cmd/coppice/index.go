package main

import (
	"context"
	"fmt"

	"github.com/coppice-llm/coppice/bench"
)

// indexCmd is coppice bench index; see bench.PlayIndex.
type indexCmd struct {
	traceFlags
	bench.IndexConfig
	JSON bool `name:"json" help:"Print one JSON object instead of the table."`
}

// Run is called by kong.
func (c *indexCmd) Run(ctx context.Context) error {
	trace, source, err := c.load()
	if err != nil {
		return err
	}
	heading := fmt.Sprintf("%s, blocks of %d tokens, %d workers, %v index, threads: %d", source, c.BlockTokens, c.Workers, c.IndexConfig.Kind, c.Threads)
	return report(c.Steps(), "replays", heading, c.JSON, false, func(progress func()) (*bench.IndexSummary, error) {
		return bench.PlayIndex(ctx, trace, c.IndexConfig, progress)
	})
}
