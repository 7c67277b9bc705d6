package main

import (
	"context"
	"fmt"

	"github.com/coppice-llm/coppice/bench"
	"github.com/coppice-llm/coppice/radixcache"
)

// radixCmd is coppice bench radix; see bench.PlayRadix.
type radixCmd struct {
	traceFlags     `embed:""`
	PageTokens     int               `name:"page-tokens" default:"16" min:"1" help:"Tokens per page: 1 to 32768."`
	BlockTokens    int               `name:"block-tokens" default:"0" help:"Tokens per event block, a multiple of a page; nobody listens here. Default: the cache's own."`
	CapacityTokens int               `name:"capacity-tokens" default:"0" help:"Tokens that the cache may hold. Default: all."`
	Policy         radixcache.Policy `default:"lru" help:"Which leaf is evicted first: ${evictions}."`
	Trim           bool              `help:"Evict the last pages of a leaf before the whole of it, and join what was split, as a server does. Default: whole leaves, as the published sums have it."`
	Passes         int               `default:"5" min:"1" help:"Timed replays, whose medians are shown."`
	JSON           bool              `name:"json" help:"Print one JSON object instead of the table."`
}

// Help is printed by kong under the summary.
func (*radixCmd) Help() string {
	return `Each request of a trace is matched, gets room by eviction, and is inserted.

Examples:
  coppice bench radix
  coppice bench radix --json
  coppice bench radix --kind tree --page-tokens 1
  coppice bench radix --capacity-tokens 500000   # a cache too small for the working set
  coppice bench radix --capacity-tokens 500000 --policy cost-aware --trim
  coppice bench radix --trace chat.pfxt`
}

// Run is called by kong.
func (c *radixCmd) Run(ctx context.Context) error {
	cfg := bench.RadixConfig{PageTokens: c.PageTokens, BlockTokens: c.BlockTokens, CapacityTokens: c.CapacityTokens, Policy: c.Policy, Trim: c.Trim, Passes: c.Passes}
	trace, source, err := c.load()
	if err != nil {
		return err
	}
	s, err := withProgress(cfg.Steps(), "replays", func(progress func()) (*bench.RadixSummary, error) {
		return bench.PlayRadix(ctx, trace, cfg, progress)
	})
	if err != nil {
		return err
	}
	if !c.JSON {
		fmt.Printf("%s, pages of %d tokens, %s\n\n", source, c.PageTokens, c.capacity())
	}
	return printReport(s, c.JSON, false)
}

func (c *radixCmd) capacity() string {
	if c.CapacityTokens == 0 {
		return "room for all"
	}
	return fmt.Sprintf("room for %d tokens", c.CapacityTokens)
}
