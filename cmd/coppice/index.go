package main

import (
	"context"
	"fmt"

	"github.com/coppice-llm/coppice/bench"
)

// indexCmd is coppice bench index; see bench.PlayIndex.
type indexCmd struct {
	traceFlags  `embed:""`
	Workers     int             `default:"8" min:"1" help:"Number of workers; request i goes to worker i modulo this number."`
	BlockTokens int             `name:"block-tokens" default:"16" min:"1" help:"Tokens per block."`
	Index       bench.IndexKind `default:"radix" help:"Index: radix or sharded."`
	Shards      int             `default:"8" min:"1" help:"Number of shards of the sharded index."`
	Threads     int             `default:"1" min:"1" help:"Threads that hash, find and store. Their number changes times only, not results."`
	Passes      int             `default:"5" min:"1" help:"Number of timed replays; the report shows medians."`
	JSON        bool            `name:"json" help:"Print one JSON object instead of the table."`
}

// Run is called by kong.
func (c *indexCmd) Run(ctx context.Context) error {
	cfg := bench.IndexConfig{Kind: c.Index, Shards: c.Shards, Workers: c.Workers, BlockTokens: c.BlockTokens, Threads: c.Threads, Passes: c.Passes}
	trace, source, err := c.load()
	if err != nil {
		return err
	}
	heading := fmt.Sprintf("%s, blocks of %d tokens, %d workers, %v index, threads: %d", source, c.BlockTokens, c.Workers, c.Index, c.Threads)
	return report(cfg.Steps(), "replays", heading, c.JSON, false, func(progress func()) (*bench.IndexSummary, error) {
		return bench.PlayIndex(ctx, trace, cfg, progress)
	})
}
