package main

import (
	"context"
	"fmt"

	"github.com/coppice-llm/coppice/bench"
	"github.com/coppice-llm/coppice/router/kvindex"
)

// indexCmd is coppice bench index; see bench.PlayIndex.
type indexCmd struct {
	traceFlags  `embed:""`
	Workers     int              `default:"8" min:"1" help:"Request i goes to worker i modulo this."`
	BlockTokens int              `name:"block-tokens" default:"16" min:"1" help:"Tokens per block."`
	Index       bench.IndexKind  `default:"radix" help:"Index: radix or sharded."`
	By          kvindex.Sharding `default:"branch" help:"What the sharded index is cut by: branch or worker."`
	Shards      int              `default:"8" min:"1" help:"Shards of the sharded index."`
	Threads     int              `default:"1" min:"1" help:"Threads that hash, find and store; what they find is the same for any number."`
	Passes      int              `default:"5" min:"1" help:"Timed replays, whose medians are shown."`
	JSON        bool             `name:"json" help:"Print one JSON object instead of the table."`
}

// Help is printed by kong under the summary.
func (*indexCmd) Help() string {
	return `Each request of a trace is hashed and looked up among the workers of a fleet; then what its worker lacks is stored.

Examples:
  coppice bench index
  coppice bench index --json
  coppice bench index --kind tree --block-tokens 64
  coppice bench index --index sharded --threads 2
  coppice bench index --trace chat.pfxt --workers 64`
}

// Run is called by kong.
func (c *indexCmd) Run(ctx context.Context) error {
	cfg := bench.IndexConfig{Kind: c.Index, By: c.By, Shards: c.Shards, Workers: c.Workers, BlockTokens: c.BlockTokens, Threads: c.Threads, Passes: c.Passes}
	trace, source, err := c.load()
	if err != nil {
		return err
	}
	s, err := withProgress(cfg.Steps(), "replays", func(progress func()) (*bench.IndexSummary, error) {
		return bench.PlayIndex(ctx, trace, cfg, progress)
	})
	if err != nil {
		return err
	}
	if !c.JSON {
		fmt.Printf("%s, blocks of %d tokens, %d workers, %v index, threads: %d\n\n", source, c.BlockTokens, c.Workers, c.Index, c.Threads)
	}
	return printReport(s, c.JSON, false)
}
